# SPDX-License-Identifier: Apache-2.0
"""Edits kernel arguments: in a generated grub.cfg, boot loader entries, and GRUB's environment block."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harpctl.errors import ExitCode, HarpError
from harpctl.facts.grub_menu import parse_entries, passed_arguments
from harpctl.kargs.cmdline import HugepageArgs, Word, reserves_exactly, rewrite_text, split_words

_RAW_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""")


def edited_menu(text: str, values: Mapping[str, str], wanted: HugepageArgs) -> str:
    """Return the menu with the arguments of every entry that does not yet pass `wanted` edited."""
    for entry in reversed(parse_entries(text)):
        if not reserves_exactly(passed_arguments(entry.raw, values), wanted):
            text = rewrite_text(text, _raw_words(text, entry.start, entry.end), entry.end, wanted, " ")
    return text


def edited_setting(text: str, name: str, wanted: HugepageArgs) -> str:
    """Return the menu with the kernel arguments edited that it sets a variable to, such as kernelopts."""
    pattern = re.compile(rf'^(\s*set\s+{name}=")([^"]*)(")', re.MULTILINE)
    for match in reversed(list(pattern.finditer(text))):
        if not reserves_exactly(match[2], wanted):
            words = split_words(text, match.start(2), match.end(2))
            text = rewrite_text(text, words, match.end(2), wanted)
    return text


def _raw_words(text: str, start: int, end: int) -> list[Word]:
    """Split as GRUB does; the words' texts are without quotes, their spans with them."""
    found = _RAW_WORD.finditer(text, start, end)
    return [Word(re.sub(r"[\"'\\]", "", match.group()), *match.span()) for match in found]


def edited_entry(text: str, wanted: HugepageArgs) -> str:
    """Return the entry with its options edited; one without options gets a line of them."""
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.split(maxsplit=1)[:1] == ["options"]]
    if not numbers:
        return text + ("" if text.endswith("\n") or not text else "\n") + f"options {wanted}\n"
    words: list[Word] = []
    for line in numbers[1:]:  # one line is easier to edit than several, and means the same
        words += split_words(lines[line])[1:]
        lines[line] = ""
    first = lines[numbers[0]].rstrip()
    first = " ".join([first, *(word.text for word in words)])
    end = lines[numbers[0]][len(lines[numbers[0]].rstrip("\r\n")) :]
    lines[numbers[0]] = rewrite_text(first, split_words(first)[1:], len(first), wanted, " ") + end
    return "".join(lines)


def edited_env(path: str, data: bytes, name: str, new: str) -> bytes:
    """Return the block with a variable set, as long as before: GRUB writes it in place."""
    lines = data.decode("utf-8", "surrogateescape").rstrip("#").splitlines(keepends=True)
    line = f"{name}={new.replace(chr(92), chr(92) * 2)}\n"
    where = [number for number, old in enumerate(lines) if old.startswith(f"{name}=")]
    if where:
        lines[where[0]] = line
    else:
        lines.append(line)
    block = "".join(lines).encode("utf-8", "surrogateescape")
    if len(block) > len(data):
        raise HarpError(
            f"{path}: the kernel arguments no longer fit into its {len(data)} bytes.",
            "Take arguments that are not needed out of it (grub2-editenv - list), then run setup again.",
            ExitCode.WRONG_DATA,
        )
    return block + b"#" * (len(data) - len(block))
