# SPDX-License-Identifier: Apache-2.0
"""The table of settings: every key of the conf file, every HARP_ variable, and the bounds of conf files.

`make -C plugin settings` writes settings.json from the plugin's own table, plugin/src/host/settings.def. It
is in the repository: harpctl also runs without a plugin, and is installed from sources without a C compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any

import msgspec

from harpctl.confs import values
from harpctl.units import short_size

JOB = "job"

Value = str | int | tuple[int, ...]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row. What is None does not apply."""

    kind: str
    section: str | None
    key: str | None
    variable: str | None
    scope: str  # "eni", or "job": one value for all conf files that set it
    words: tuple[str, ...]
    min: int
    max: int
    unit: str | None
    initial: str | None  # the value where nothing sets it
    otherwise: str | None  # or, if it depends on the host, what it is in words
    expected: str
    help: str

    def read(self, text: str) -> Value:
        """Return the value of a text. Raises ValueError when the plugin would refuse it."""
        return _READERS[self.kind](self, text)

    def write(self, value: Value) -> str:
        """Return the text of a value, as it stands in a conf file."""
        return _WRITERS.get(self.kind, str)(value)


_READERS: dict[str, Callable[[Setting, str], Value]] = {
    "number": lambda row, text: values.read_number(text, row.min, row.max),
    "seconds": lambda row, text: values.read_number(text, row.min, row.max),
    "size": lambda row, text: values.read_size(text, row.min, row.max),
    "word": lambda row, text: values.read_word(text, row.words),
    "interface": lambda _row, text: values.read_interface(text),
    "mac": lambda _row, text: values.read_hex(values.MAC, text),
    "pci": lambda _row, text: values.read_hex(values.PCI, text),
    "address": lambda _row, text: values.read_ip(text),
    "cores": lambda row, text: values.read_cores(text, row.max, BOUNDS.core_count_max),
    "ports": lambda row, text: values.read_ports(text, row.min, row.max),
    "interfaces": lambda _row, text: text,
    "directory": lambda row, text: values.read_directory(text, row.max),
    "output": lambda row, text: values.read_output(text, row.max),
}
_WRITERS: dict[str, Callable[[Any], str]] = {
    "size": short_size,
    "cores": values.write_cores,
    "ports": lambda ports: f"{ports[0]}-{ports[1]}",
}


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the plugin takes."""

    conf_files_max: int
    conf_file_bytes_max: int
    conf_line_bytes_max: int
    quote_bytes: int  # the bytes of a value that a message quotes, with "..." and the zero at its end
    core_count_max: int  # core numbers lie below this
    device_enis_max: int  # the most interfaces of a striped device
    mtu_min: int  # the least MTU of an ENI, in bytes


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    bounds: Bounds
    settings: tuple[Setting, ...]


_DOCUMENT = msgspec.json.decode((resources.files("harpctl.confs") / "settings.json").read_bytes(), type=_Document)
BOUNDS: Bounds = _DOCUMENT.bounds
TABLE = _DOCUMENT.settings
KEYS = {row.key: row for row in TABLE if row.key is not None}  # their names differ in all sections
VARIABLES = {row.variable: row for row in TABLE if row.variable is not None}
SECTIONS = tuple(dict.fromkeys(row.section for row in TABLE if row.section is not None))
