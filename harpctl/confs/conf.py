# SPDX-License-Identifier: Apache-2.0
"""One ztcp<N>.conf: its keys, its reader, which agrees with the plugin's parser, and its writer.

The format is that of docs/reference/configuration.md; a test holds this reader against the plugin's own
(plugin/src/host/conf.c) over any bytes. table.py has the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from harpctl.confs.table import BOUNDS, KEYS, SECTIONS, Value
from harpctl.errors import ExitCode, HarpError

TOOLS_DIR = "/usr/local/tfabric/tools"  # containers are given it, and nothing else of the host's files
CONF_DIR = f"{TOOLS_DIR}/config"
CONF_PATTERN = "ztcp*.conf"

_QUOTE_CHARS_MAX = BOUNDS.quote_bytes - len("...") - 1
_NAME = re.compile(r"ztcp(0|[1-9][0-9]{0,3})\.conf")
_HEADER = "# Written by harpctl; docs/reference/configuration.md of HARP says what each key means.\n"


class Conf(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a conf file: the keys that harpctl works with by name, and the others.

    None: not set, so that the plugin's default counts.
    """

    interface: str
    mac: str | None = None  # lower case
    address: str | None = None
    gateway: str | None = None
    mtu: int | None = None
    pci: str | None = None  # lower case
    numa: int | None = None
    speed_mbps: int | None = None
    queues: int | None = None
    cores: tuple[int, ...] | None = None
    gpu: int | None = None
    page_size: str | None = None
    bytes: int | None = None
    driver: str | None = None
    ports: tuple[int, int] | None = None
    devices: str | None = None
    others: dict[str, Value] = msgspec.field(default_factory=dict)

    def get(self, key: str) -> Value | None:
        """Return the value of any key; None where it is not set."""
        named: Value | None = getattr(self, key, None)
        return self.others.get(key) if named is None else named


NAMED = frozenset(Conf.__struct_fields__) - {"others"}


def conf_of(values: Mapping[str, Any]) -> Conf:
    """Return the Conf that sets these keys; None is not set."""
    others = {key: value for key, value in values.items() if key not in NAMED and value is not None}
    return Conf(**{key: value for key, value in values.items() if key in NAMED}, others=others)


def conf_path(number: int) -> str:
    """Return the path of ztcp<number>.conf on a host."""
    return f"{CONF_DIR}/ztcp{number}.conf"


def conf_number(name: str) -> int | None:
    """Return N of a file name ztcp<N>.conf, 0 to 9999; None when the plugin would refuse the name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def parse_conf(text: str, file: str) -> Conf:
    """Read a conf file's text; undecodable bytes are surrogates, as from Host.read_text.

    Raises HarpError with the plugin's own message: "file:line: key ...: expected ...".
    """
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > BOUNDS.conf_file_bytes_max:
        raise _conf_error(f"{file}: the file is too long: expected at most {BOUNDS.conf_file_bytes_max >> 10} KiB")
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    reader = _Reader(file)
    for number, line in enumerate(lines, 1):
        reader.take(number, line.removesuffix("\r"))
    if "interface" not in reader.fields:
        raise _conf_error(f"{file}: key 'interface' is missing from [eni]: expected {KEYS['interface'].expected}")
    return conf_of(reader.fields)


def render_conf(conf: Conf) -> str:
    """Return the text of a conf file; parse_conf() of it returns the same Conf."""
    blocks = []
    for section in SECTIONS:
        lines = [
            f"{name} = {row.write(value)}\n"
            for name, row in KEYS.items()
            if row.section == section and (value := conf.get(name)) is not None
        ]
        if lines:
            blocks.append(f"[{section}]\n{''.join(lines)}")
    return _HEADER + "\n".join(blocks)


class _Reader:
    """Takes a file's lines in order and collects the values."""

    def __init__(self, file: str) -> None:
        self.fields: dict[str, Any] = {}
        self._file = file
        self._at = file  # "file:line"
        self._section = ""
        self._seen: set[str] = set()
        self._set_in: dict[str, int] = {}

    def take(self, number: int, line: str) -> None:
        """Take one line without its end; one character per byte."""
        self._at = f"{self._file}:{number}"
        if len(line) > BOUNDS.conf_line_bytes_max:
            most = BOUNDS.conf_line_bytes_max
            raise _conf_error(f"{self._at}: the line is too long: expected at most {most} bytes")
        if "\0" in line:
            raise _conf_error(f"{self._at}: a NUL byte: expected text")
        line = line.strip(" \t")
        if not line or line[0] in "#;":
            return
        if line[0] == "[":
            self._open_section(line)
            return
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise _conf_error(f"{self._at}: '{_quote_for_message(line)}': expected key = value")
        self._set_value(number, name.strip(" \t"), value.strip(" \t"))

    def _open_section(self, line: str) -> None:
        if line[-1] != "]":
            raise _conf_error(
                f"{self._at}: '{_quote_for_message(line)}': expected ] at the end of the section's line"
            )
        name = line[1:-1]
        if name in self._seen:
            raise _conf_error(f"{self._at}: section [{name}] is there twice: expected one of each")
        if name not in SECTIONS:
            known = " or ".join([", ".join(f"[{one}]" for one in SECTIONS[:-1]), f"[{SECTIONS[-1]}]"])
            raise _conf_error(f"{self._at}: unknown section [{_quote_for_message(name)}]: expected {known}")
        self._seen.add(name)
        self._section = name

    def _set_value(self, number: int, name: str, value: str) -> None:
        shown = f"key '{_quote_for_message(name)}' = '{_quote_for_message(value)}'"
        if not self._section:
            raise _conf_error(f"{self._at}: {shown}: expected a [section] line before it")
        row = KEYS.get(name)
        if row is None or row.section != self._section:
            known = ", ".join(name for name, row in KEYS.items() if row.section == self._section)
            raise _conf_error(f"{self._at}: unknown {shown} in [{self._section}]: expected one of {known}")
        if name in self.fields:
            first = self._set_in[name]
            raise _conf_error(f"{self._at}: {shown}: expected the key once, it is set in line {first}")
        try:
            self.fields[name] = row.read(value)
        except ValueError:
            raise _conf_error(f"{self._at}: {shown}: expected {row.expected}") from None
        self._set_in[name] = number


def quoted_start(text: str) -> str:
    """Return as much of a text as a message quotes, "?" for what is not printable ASCII."""
    return "".join(char if " " <= char <= "~" else "?" for char in text[:_QUOTE_CHARS_MAX])


def _quote_for_message(text: str) -> str:
    """Return a text for a message: no control characters, and not too long."""
    return quoted_start(text) + ("..." if len(text) > _QUOTE_CHARS_MAX else "")


def _conf_error(sentence: str) -> HarpError:
    return HarpError(sentence, "Correct the file by hand.", ExitCode.WRONG_DATA)
