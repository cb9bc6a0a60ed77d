# SPDX-License-Identifier: Apache-2.0
"""The kinds of values: each reader takes one text and raises ValueError when it is no such value.

They accept exactly what the plugin's own readers accept (plugin/src/host/setting.c, option.c). A text holds
one character per byte of the file. The bounds are those of the table of settings.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from harpctl.units import BYTES, number_ranges

_DIGITS = re.compile(r"[0-9]+")
_SIZE = re.compile(r"([0-9]+)([KMG]?)")
_PORTS = re.compile(r"([0-9]+)-([0-9]+)")
_CORES = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_INTERFACE = re.compile(r"[!-.0-9;-~]{1,15}")
MAC = re.compile(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}")  # six pairs of hex digits
PCI = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")  # "0000:3b:00.1"


def read_number(text: str, low: int, high: int) -> int:
    """Read decimal digits from low to high."""
    if not _DIGITS.fullmatch(text):
        raise ValueError(text)
    return _check_range(_parse_decimal(text), low, high)


def read_word(text: str, words: Sequence[str]) -> str:
    """Read one of some words."""
    if text not in words:
        raise ValueError(text)
    return text


def read_interface(text: str) -> str:
    """Read 1 to 15 characters that Linux allows in an interface's name."""
    if text in {".", ".."}:
        raise ValueError(text)
    return _check_pattern(_INTERFACE, text)


def read_ip(text: str) -> str:
    """Read an IPv4 or IPv6 address; return its canonical form."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, text))
        except OSError:
            continue
    raise ValueError(text)


def read_cores(text: str, count_max: int, number_end: int) -> tuple[int, ...]:
    """Read different core numbers below `number_end` and ranges, "2-5,8", in the order given."""
    cores: list[int] = []
    for piece in text.split(","):
        match = _CORES.fullmatch(piece)
        if match is None:
            raise ValueError(text)
        first = _check_range(_parse_decimal(match[1]), 0, number_end - 1)
        last = first if match[2] is None else _check_range(_parse_decimal(match[2]), first, number_end - 1)
        cores.extend(range(first, last + 1))
    if len(cores) > count_max or len(set(cores)) != len(cores):
        raise ValueError(text)
    return tuple(cores)


def read_size(text: str, low: int, high: int) -> int:
    """Read a size in bytes, or with K, M or G (powers of 1024)."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return _check_range(_parse_decimal(match[1]) * BYTES[match[2]], low, high)


def read_ports(text: str, low: int, high: int) -> tuple[int, int]:
    """Read a range "LOW-HIGH" of ports."""
    match = _PORTS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    first = _check_range(_parse_decimal(match[1]), low, high)
    return first, _check_range(_parse_decimal(match[2]), first, high)


def read_directory(text: str, bytes_max: int) -> str:
    """Read a path of a directory."""
    if len(text.encode("utf-8", "surrogateescape")) > bytes_max:
        raise ValueError(text)
    return text


def read_output(text: str, bytes_max: int) -> str:
    """Read "off" or the absolute path of a directory."""
    if text != "off" and not text.startswith("/"):
        raise ValueError(text)
    return read_directory(text, bytes_max)


def write_cores(cores: tuple[int, ...]) -> str:
    """Return the text of core numbers, ascending neighbours as ranges: 2-5,8."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in number_ranges(cores))


def _parse_decimal(digits: str) -> int:
    """Return the number; one with too many digits for any bound is cut, since int() refuses thousands."""
    return int(digits.lstrip("0")[:20] or "0")


def _check_range(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def read_hex(pattern: re.Pattern[str], text: str) -> str:
    """Read a text of a pattern; return it in lower case."""
    return _check_pattern(pattern, text).lower()


def _check_pattern(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text
