# SPDX-License-Identifier: Apache-2.0
"""Waits until the kernel reports by netlink that interfaces, their addresses, routes or rules changed."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from collections.abc import Collection, Iterator

from harpctl.network.model import RULE_PRIORITY_FIRST, TABLE_COUNT

# RTMGRP_LINK, and of each version of IP RTMGRP_IFADDR and RTMGRP_ROUTE; IPv4's rules
GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | 1 << 7
IPV6_RULES = 19  # RTNLGRP_IPV6_RULE
SOL_NETLINK, ADD_MEMBERSHIP = 270, 1
LINKS, ADDRESSES, ROUTES, RULES = (16, 17), (20, 21), (24, 25), (32, 33)
IFLA_IFNAME, RTA_OIF, FRA_PRIORITY = 3, 4, 6
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
ATTRIBUTE = struct.Struct("=HH")  # length, type
BODIES = {LINKS: 16, ADDRESSES: 8, ROUTES: 12, RULES: 12}  # bytes before the attributes
INDEX_AT = 4  # of the interface, in links and addresses
BUFFER_BYTES = 64 << 10
QUIET_S = 0.2  # changes come in groups
GROUP_S = 2.0  # the longest that a group is waited for


class Watch:
    """A socket to which the kernel reports changes, from its opening on."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, GROUPS))
        self._socket.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, IPV6_RULES)

    def wait(self, names: Collection[str], timeout_s: float | None) -> bool:
        """Wait for changes that concern these interfaces or HARP's rules; False when the time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._has_change(names, end):
            if end is not None and time.monotonic() >= end:
                return False
        end = time.monotonic() + GROUP_S
        while time.monotonic() < end and self._is_readable(QUIET_S):
            self._receive()
        return True

    def _has_change(self, names: Collection[str], end: float | None) -> bool:
        if not self._is_readable(None if end is None else max(0.0, end - time.monotonic())):
            return False
        data = self._receive()
        return data is None or concerns(data, names)

    def _is_readable(self, timeout_s: float | None) -> bool:
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def _receive(self) -> bytes | None:
        """Return what the kernel reports; None where it had more than the socket holds."""
        try:
            return self._socket.recv(BUFFER_BYTES)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return None


def concerns(data: bytes, names: Collection[str]) -> bool:
    """Return whether what the kernel reports concerns one of these interfaces, or a rule of HARP."""
    return any(_is_about(names, kind, body) for kind, body in _messages(data))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= HEADER.size:
        length, kind, *_rest = HEADER.unpack_from(data)
        if length < HEADER.size:
            return
        yield kind, data[HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _is_about(names: Collection[str], kind: int, body: bytes) -> bool:
    family = next((kinds for kinds in BODIES if kind in kinds), None)
    if family is None or len(body) < BODIES[family]:
        return False
    attributes = dict(_attributes(body[BODIES[family] :]))
    if family in {LINKS, ADDRESSES}:
        name = attributes.get(IFLA_IFNAME, b"").rstrip(b"\0").decode(errors="replace")
        is_named = family == LINKS and name in names  # it may be gone
        return is_named or int(struct.unpack_from("=I", body, INDEX_AT)[0]) in _indexes(names)
    wanted = RTA_OIF if family == ROUTES else FRA_PRIORITY
    if len(attributes.get(wanted, b"")) != struct.calcsize("=I"):
        return False
    number = int(struct.unpack("=I", attributes[wanted])[0])
    if family == ROUTES:
        return number in _indexes(names)
    return 0 <= number - RULE_PRIORITY_FIRST < TABLE_COUNT


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if length < ATTRIBUTE.size:
            return
        yield kind, data[ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]


def _indexes(names: Collection[str]) -> set[int]:
    found = set()
    for name in names:
        with contextlib.suppress(OSError):
            found.add(socket.if_nametoindex(name))
    return found
