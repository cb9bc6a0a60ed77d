# SPDX-License-Identifier: Apache-2.0
"""One ztcp<N>.conf: its keys, its reader, which agrees with the plugin's parser, and its writer.

The format and the keys are those of docs/configuration.md; a test holds this reader against the plugin's
own (plugin/src/host/conf.c) over any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from harpctl.confs import values
from harpctl.errors import ExitCode, HarpError

TOOLS_DIR = "/usr/local/tfabric/tools"  # containers are given it, and nothing else of the host's files
CONF_DIR = f"{TOOLS_DIR}/config"
CONF_PATTERN = "ztcp*.conf"
CONF_COUNT_MAX = 16  # HARP_MAX_INSTANCES of the plugin
FILE_BYTES_MAX = 64 << 10
LINE_BYTES_MAX = 512
QUOTE_CHARS_MAX = 68

_NAME = re.compile(r"ztcp(0|[1-9][0-9]{0,3})\.conf")
_HEADER = "# Written by harpctl; docs/configuration.md of HARP says what each key means.\n"


class Conf(msgspec.Struct, frozen=True, kw_only=True):
    """What a conf file sets. None: not set, so that the plugin's default counts."""

    interface: str
    mac: str | None = None  # lower case
    address: str | None = None
    gateway: str | None = None
    mtu: int | None = None
    pci: str | None = None  # lower case
    numa: int | None = None
    speed_mbps: int | None = None
    queues: int | None = None
    mode: str | None = None
    cores: tuple[int, ...] | None = None
    gpu: int | None = None
    page_size: str | None = None
    bytes: int | None = None
    driver: str | None = None
    ports: tuple[int, int] | None = None
    paths: int | None = None
    peer_timeout: int | None = None  # seconds
    congestion: str | None = None
    devices: str | None = None


class Key(msgspec.Struct, frozen=True):
    """One key: where it stands, what it takes, how it is read and written. Its name is its field of Conf."""

    section: str
    name: str
    expected: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str


DRIVERS = ("auto", "xdp", "xdp-zc", "xdp-copy", "udp", "tcp", "udp+tcp")
MODES = ("auto", "inline", "thread")
PAGE_SIZES = ("auto", "1G", "2M", "thp", "4K")
CONGESTIONS = ("delay", "reno")
DEVICES = ("striped", "enis")
SECTIONS = ("eni", "engine", "memory", "transport")

KEYS = (
    Key("eni", "interface", "an interface name of 1 to 15 characters", values.read_interface),
    Key("eni", "mac", "a MAC address such as 52:54:00:12:34:56", values.read_mac),
    Key("eni", "address", "an IPv4 or IPv6 address", values.read_ip),
    Key("eni", "gateway", "an IPv4 or IPv6 address", values.read_ip),
    Key("eni", "mtu", "a number from 576 to 65536", values.number(576, 65536)),
    Key("eni", "pci", "a PCI address such as 0000:00:06.0", values.read_pci),
    Key("eni", "numa", "a number from 0 to 1023", values.number(0, 1023)),
    Key("eni", "speed_mbps", "a number from 1 to 10000000", values.number(1, 10_000_000)),
    Key("eni", "queues", "a number from 1 to 64", values.number(1, 64)),
    Key("engine", "mode", "auto, inline or thread", values.word(*MODES)),
    Key(
        "engine",
        "cores",
        "1 to 64 different core numbers such as 2-5,8",
        values.read_cores,
        values.write_cores,
    ),
    Key("engine", "gpu", "a number from 0 to 1023", values.number(0, 1023)),
    Key("memory", "page_size", "auto, 1G, 2M, thp or 4K", values.word(*PAGE_SIZES)),
    Key("memory", "bytes", "a size from 1M to 64G", values.read_bytes, values.write_bytes),
    Key("transport", "driver", "auto, xdp, xdp-zc, xdp-copy, udp, tcp or udp+tcp", values.word(*DRIVERS)),
    Key(
        "transport",
        "ports",
        "a range LOW-HIGH within 1024-65535",
        values.read_ports,
        values.write_ports,
    ),
    Key("transport", "paths", "a number from 1 to 16", values.number(1, 16)),
    Key("transport", "peer_timeout", "whole seconds from 1 to 600", values.number(1, 600)),
    Key("transport", "congestion", "delay or reno", values.word(*CONGESTIONS)),
    Key("transport", "devices", "striped or enis", values.word(*DEVICES)),
)
_KEYS = {(key.section, key.name): key for key in KEYS}


def conf_path(number: int) -> str:
    """Return the path of ztcp<number>.conf on a host."""
    return f"{CONF_DIR}/ztcp{number}.conf"


def conf_number(name: str) -> int | None:
    """Return N of a file name ztcp<N>.conf, 0 to 9999; None when the plugin would refuse the name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def parse(text: str, file: str) -> Conf:
    """Read a conf file's text; undecodable bytes are surrogates, as Host.read_text gives them.

    Raises HarpError with the plugin's own sentence: "file:line: key ...: expected ...".
    """
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > FILE_BYTES_MAX:
        raise _wrong(f"{file}: the file is too long: expected at most {FILE_BYTES_MAX >> 10} KiB")
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    reader = _Reader(file)
    for number, line in enumerate(lines, 1):
        reader.take(number, line.removesuffix("\r"))
    if "interface" not in reader.fields:
        raise _wrong(f"{file}: key 'interface' is missing from [eni]: expected {KEYS[0].expected}")
    return Conf(**reader.fields)


def render(conf: Conf) -> str:
    """Write the text of a conf file; parse() of it gives the same Conf."""
    blocks = []
    for section in SECTIONS:
        lines = [
            f"{key.name} = {key.write(value)}\n"
            for key in KEYS
            if key.section == section and (value := getattr(conf, key.name)) is not None
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
        if len(line) > LINE_BYTES_MAX:
            raise _wrong(f"{self._at}: the line is too long: expected at most {LINE_BYTES_MAX} bytes")
        if "\0" in line:
            raise _wrong(f"{self._at}: a NUL byte: expected text")
        line = line.strip(" \t")
        if not line or line[0] in "#;":
            return
        if line[0] == "[":
            self._open(line)
            return
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise _wrong(f"{self._at}: '{_quoted(line)}': expected key = value")
        self._set(number, name.strip(" \t"), value.strip(" \t"))

    def _open(self, line: str) -> None:
        if line[-1] != "]":
            raise _wrong(f"{self._at}: '{_quoted(line)}': expected ] at the end of the section's line")
        name = line[1:-1]
        if name in self._seen:
            raise _wrong(f"{self._at}: section [{name}] is there twice: expected one of each")
        if name not in SECTIONS:
            known = "[eni], [engine], [memory] or [transport]"
            raise _wrong(f"{self._at}: unknown section [{_quoted(name)}]: expected {known}")
        self._seen.add(name)
        self._section = name

    def _set(self, number: int, name: str, value: str) -> None:
        shown = f"key '{_quoted(name)}' = '{_quoted(value)}'"
        if not self._section:
            raise _wrong(f"{self._at}: {shown}: expected a [section] line before it")
        key = _KEYS.get((self._section, name))
        if key is None:
            known = ", ".join(key.name for key in KEYS if key.section == self._section)
            raise _wrong(f"{self._at}: unknown {shown} in [{self._section}]: expected one of {known}")
        if name in self.fields:
            first = self._set_in[name]
            raise _wrong(f"{self._at}: {shown}: expected the key once, it is set in line {first}")
        try:
            self.fields[name] = key.read(value)
        except ValueError:
            raise _wrong(f"{self._at}: {shown}: expected {key.expected}") from None
        self._set_in[name] = number


def _quoted(text: str) -> str:
    """Return a text for a message: no control characters, and not too long."""
    shown = "".join(char if " " <= char <= "~" else "?" for char in text[:QUOTE_CHARS_MAX])
    return shown + ("..." if len(text) > QUOTE_CHARS_MAX else "")


def _wrong(sentence: str) -> HarpError:
    return HarpError(
        sentence,
        "Correct the file by hand, or let `harpctl setup` write it again.",
        ExitCode.WRONG_DATA,
    )
