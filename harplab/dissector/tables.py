# SPDX-License-Identifier: Apache-2.0
"""Reads the indented blocks of docs/reference/wire.md: layouts, constants, codes.

tests/meta/test_wire_doc.py compares the same blocks with the code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

WIRE_DOC = "wire.md"  # a file of harplab/data that a package brings
LAB = Path(__file__).resolve().parents[1]
LAYOUT = re.compile(r"^ {4}(harp_\w+)\n((?: {4,}\d.*\n)+)", re.MULTILINE)
FIELD = re.compile(
    r"^ +(\d+) +(\w+)(?:\[(\d+)\])? +(\w+) *(.*)$", re.MULTILINE
)  # offset, type, number of values, name, meaning
CONSTANT = re.compile(r"^ {4}(HARP_\w+) +(\w+)$", re.MULTILINE)
CODE = re.compile(r"^ {4,}(\d+) +(HARP_\w+)", re.MULTILINE)
UNIT_BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "bytes": 1, "prefix": 20, "endpoint": 96, "eni": 56}
NESTED = {  # types that are layouts
    "prefix": "harp_wire_prefix",
    "endpoint": "harp_wire_endpoint",
    "eni": "harp_wire_eni",
}
ENUMS = {"PACKET_TYPES": "HARP_PACKET_", "CONTROL_TYPES": "HARP_CONTROL_", "REFUSALS": "HARP_REFUSAL_"}
ENUM_OF = {
    ("harp_wire_prefix", "type"): "PACKET_TYPES",
    ("harp_wire_control", "type"): "CONTROL_TYPES",
    ("harp_wire_refuse", "reason"): "REFUSALS",
    ("harp_wire_opened", "refusal"): "REFUSALS",
}
HEX = {"crc", "token", "magic", "payload_crc"}


def wire_doc() -> str:
    """Return docs/reference/wire.md: the package's, else the checkout's."""
    packaged = LAB / "data" / WIRE_DOC
    file = packaged if packaged.is_file() else LAB.parent / "docs" / "reference" / WIRE_DOC
    return file.read_text(encoding="utf-8")


class Field(NamedTuple):
    """A line of a layout."""

    offset: int
    size: int
    type: str
    name: str
    meaning: str

    @property
    def values(self) -> int:
        """Return how many values of its type it holds."""
        return self.size // UNIT_BYTES[self.type]

    @property
    def is_text(self) -> bool:
        """Return whether it holds a text that ends with a zero."""
        return self.type == "bytes" and "NUL-terminated" in self.meaning


def parse_layouts(text: str) -> dict[str, list[Field]]:
    """Return the fields of each layout by its name in the code."""
    return {
        name: [
            Field(int(offset), int(count or 1) * UNIT_BYTES[unit], unit, field, meaning)
            for offset, unit, count, field, meaning in FIELD.findall(lines)
        ]
        for name, lines in LAYOUT.findall(text)
    }


def parse_constants(text: str) -> dict[str, int]:
    """Return the constants by name."""
    return {name: int(value, 0) for name, value in CONSTANT.findall(text)}


def names_of_codes(text: str, prefix: str) -> dict[int, str]:
    """Return the names, less the prefix that they share, of a kind of codes."""
    return {int(code): name.removeprefix(prefix) for code, name in CODE.findall(text) if name.startswith(prefix)}


def expand_layout(tables: dict[str, list[Field]], name: str) -> list[Field]:
    """Return the fields of a layout, with those of nested layouts in their places."""
    found: list[Field] = []
    for field in tables[name]:
        found += expand_layout(tables, NESTED[field.type]) if field.type in NESTED else [field]
    return found
