# SPDX-License-Identifier: Apache-2.0
"""Text from the host's own files, made safe: whatever a file holds, it can be printed and encoded."""

from __future__ import annotations

import re

from harpctl.host.host import Host

NUMBER_MAX = (1 << 63) - 1
LIST_MAX = 1 << 16  # processors, nodes: more than any kernel numbers


def clean_text(data: bytes) -> str:
    """Decode text, with marks for what is no UTF-8 and no zero bytes."""
    return data.decode("utf-8", "replace").replace("\0", " ")


def read_clean(host: Host, path: str) -> str:
    """Return a file's text; "" when it cannot be read."""
    return clean_text(host.read_bytes(path) or b"")


def read_lines(host: Host, path: str) -> list[str]:
    """Return a file's lines; none when it cannot be read."""
    return read_clean(host, path).splitlines()


def read_word(host: Host, path: str) -> str:
    """Return what a control file of one line holds; "" when it cannot be read."""
    return read_clean(host, path).strip()


def parse_number(text: str, default: int = -1, base: int = 10) -> int:
    """Read a whole number that fits 63 bits; the default for anything else."""
    try:
        value = int(text, base)
    except ValueError:
        return default
    return value if abs(value) <= NUMBER_MAX else default


def read_count(host: Host, path: str, default: int = 0) -> int:
    """Read a control file that holds a number; the default where it is missing, wrong or negative."""
    value = parse_number(read_word(host, path), default)
    return value if value >= 0 else default


def number_list(text: str) -> tuple[int, ...]:
    """Read a list as the kernel writes it, "0-3,8"; what is no number in it is left out."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if match := re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip(), re.ASCII):
            first, last = int(match[1]), int(match[2] or match[1])
            found.update(range(first, min(last, LIST_MAX) + 1))
    return tuple(sorted(found))
