# SPDX-License-Identifier: Apache-2.0
"""A generated grub.cfg: which entries boot Linux with which kernel arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

_SECTION = re.compile(r"### (BEGIN|END) (\S+) ###")
_TITLE = re.compile(r"""\s*menuentry\s+(?:'([^']*)'|"([^"]*)"|(\S+))""")
_LINUX = re.compile(r"(\s*linux(?:16|efi)?[ \t]+)(\S+)(.*)$")
_SET = re.compile(r"\s*set\s+(\w+)=(.*?)\s*$")
_BLSCFG = re.compile(r"^\s*blscfg\b", re.MULTILINE)
_VARIABLE = re.compile(r"'[^']*'|\$(?:(\w+)|\{(\w+)\})")
# Sections whose entries do not get the kernel arguments of this system.
_BY_HAND = ("os-prober", "custom", "memtest")


class MenuEntry(NamedTuple):
    """One entry of the menu: its kernel arguments as they are written, and where they stand."""

    title: str
    section: str
    raw: str
    start: int
    end: int


def parse_entries(text: str) -> list[MenuEntry]:
    """Return the entries that boot this system.

    Those of another system, of a memory test or written by hand are left out, unless there are no others.
    """
    found = list(_all_entries(text))
    own = [entry for entry in found if not entry.section.endswith(_BY_HAND)]
    return own or found


def _all_entries(text: str) -> list[MenuEntry]:
    found = []
    section = title = ""
    at = 0
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        if mark := _SECTION.search(body):
            section = mark[2] if mark[1] == "BEGIN" else ""
        elif named := _TITLE.match(body):
            title = next(group for group in named.groups() if group is not None)
        elif (kernel := _LINUX.match(body)) and "memtest" not in kernel[2]:
            found.append(MenuEntry(title, section, kernel[3], at + kernel.start(3), at + kernel.end(3)))
        at += len(line)
    return found


def runs_blscfg(text: str) -> bool:
    """Return whether the menu is built at boot from the files in /boot/loader/entries."""
    return bool(_BLSCFG.search(text))


def is_stub(text: str) -> bool:
    """Return whether the file holds no menu, as the one on an EFI partition that names the real one."""
    return not runs_blscfg(text) and not _all_entries(text)


def parse_variables(text: str) -> dict[str, str]:
    """Return what the file sets; of several settings of one name the last counts."""
    found = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            found[match[1]] = match[2].strip("\"'")
    return found


def expand_variables(raw: str, values: Mapping[str, str]) -> str:
    """Return a line with `$name` and `${name}` replaced; what is not set is empty, as in GRUB."""
    return _VARIABLE.sub(
        lambda match: values.get(match[1] or match[2], "") if match[1] or match[2] else match[0], raw
    )


def passed_arguments(raw: str, values: Mapping[str, str]) -> str:
    """Return the arguments that the kernel gets from what a `linux` line of grub.cfg holds."""
    text = expand_variables(raw, values)
    try:
        words = shlex.split(text)
    except ValueError:
        return " ".join(text.split())
    return " ".join(f'"{word}"' if re.search(r"\s", word) and '"' not in word else word for word in words)
