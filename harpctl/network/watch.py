# SPDX-License-Identifier: Apache-2.0
"""Waits until the kernel reports by netlink that interfaces, their addresses, routes or rules changed."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Collection
from typing import Any

from harpctl.network.model import RULE_PRIORITY_FIRST, TABLE_COUNT

# RTMGRP_LINK, and of each version of IP RTMGRP_IFADDR and RTMGRP_ROUTE; IPv4's rules
GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | 1 << 7
IPV6_RULES = 19  # RTNLGRP_IPV6_RULE
SOL_NETLINK, ADD_MEMBERSHIP = 270, 1
BUFFER_BYTES = 64 << 10
QUIET_S = 0.2  # changes come in groups; one has ended when nothing came for so long
GROUP_S = 2.0  # the longest wait for the end of a group


class ChangeListener:
    """A socket to which the kernel reports changes, from its opening on."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((0, GROUPS))
        self._socket.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, IPV6_RULES)

    def wait_for_change(self, names: Collection[str], timeout_s: float) -> bool:
        """Wait for changes that concern these interfaces or HARP's rules; False when the time is over."""
        end = time.monotonic() + timeout_s
        while not self._has_change(names, end):
            if time.monotonic() >= end:
                return False
        end = time.monotonic() + GROUP_S
        while time.monotonic() < end and self._is_readable(QUIET_S):
            self._receive()
        return True

    def _has_change(self, names: Collection[str], end: float) -> bool:
        if not self._is_readable(max(0.0, end - time.monotonic())):
            return False
        data = self._receive()
        return data is None or concerns_interfaces(data, names)

    def _is_readable(self, timeout_s: float) -> bool:
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def _receive(self) -> bytes | None:
        """Return what the kernel reports; None where it had more than the socket holds."""
        try:
            return self._socket.recv(BUFFER_BYTES)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return None


def concerns_interfaces(data: bytes, names: Collection[str]) -> bool:
    """Return whether what the kernel reports concerns one of these interfaces, or a rule of HARP."""
    from pyroute2.netlink.rtnl.marshal import MarshalRtnl  # noqa: PLC0415 - slow to import

    return any(_is_about(names, message) for message in MarshalRtnl().parse(data))


def _is_about(names: Collection[str], message: Any) -> bool:  # noqa: ANN401 - pyroute2 brings no types
    kind = message.get("event") or ""
    if kind.endswith("RULE"):
        priority = message.get_attr("FRA_PRIORITY")
        return priority is not None and 0 <= priority - RULE_PRIORITY_FIRST < TABLE_COUNT
    index = message.get_attr("RTA_OIF") if kind.endswith("ROUTE") else message.get("index")
    is_named = kind.endswith("LINK") and message.get_attr("IFLA_IFNAME") in names  # it may be gone
    return is_named or index in _indexes_of(names)


def _indexes_of(names: Collection[str]) -> set[int]:
    found = set()
    for name in names:
        with contextlib.suppress(OSError):
            found.add(socket.if_nametoindex(name))
    return found
