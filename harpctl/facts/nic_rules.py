# SPDX-License-Identifier: Apache-2.0
"""HARP's rules in a NIC: those of plugin/src/io/nic_rules.c, recognised as it recognises them.

A rule is ours if it asks for UDP to one address and one port and for nothing else, and lies at the place
that follows from the port. The kernel is asked by ioctl, with the structures of linux/ethtool.h; nothing is
changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable

from harpctl.facts.model import NicRule

SIOCETHTOOL = 0x8946
GET_COUNT, GET_RULE, GET_ALL = 0x2E, 0x2F, 0x30
UDP_V4_FLOW, UDP_V6_FLOW = 0x02, 0x06
FLOW_EXT, FLOW_MAC_EXT = 0x80000000, 0x40000000
PLACE_SPECIAL = 0x80000000
SALT = 0x4841
RULES_MAX = 1024  # that are read
LIST_TRIES = 3  # rules may come and go while they are listed

# Source and destination, both ports, type of service.
MATCH = {UDP_V4_FLOW: struct.Struct("!4s4s2s2sB"), UDP_V6_FLOW: struct.Struct("!16s16s2s2sB")}
WILD, EXACT = b"\0", b"\xff"


class Flow(ctypes.Structure):
    """struct ethtool_rx_flow_spec: values, and masks whose set bits are compared."""

    _fields_ = (
        ("flow_type", ctypes.c_uint32),
        ("values", ctypes.c_uint8 * 52),
        ("more_values", ctypes.c_uint32 * 5),
        ("masks", ctypes.c_uint8 * 52),
        ("more_masks", ctypes.c_uint32 * 5),
        ("queue", ctypes.c_uint64),
        ("location", ctypes.c_uint32),
    )


class Request(ctypes.Structure):
    """struct ethtool_rxnfc with room for a list of places."""

    _fields_ = (
        ("command", ctypes.c_uint32),
        ("flow_type", ctypes.c_uint32),
        ("data", ctypes.c_uint64),
        ("flow", Flow),
        ("count", ctypes.c_uint32),
        ("places", ctypes.c_uint32 * RULES_MAX),
    )


Ask = Callable[[Request], None]  # writes the answer into the request, or raises OSError


class _Interface(ctypes.Structure):
    """struct ifreq."""

    _fields_ = (("name", ctypes.c_char * 16), ("data", ctypes.c_void_p), ("rest", ctypes.c_uint8 * 16))


def location(port: int, size: int) -> int:
    """Return the place of a port's rule in a table of so many places, as the plugin does."""
    return (port ^ SALT) % size


def read_rules(name: str) -> tuple[NicRule, ...]:
    """Return HARP's rules in a NIC of this host; none where it has no rules or does not tell them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:

        def ask(request: Request) -> None:
            interface = _Interface(name=name.encode(), data=ctypes.addressof(request))
            fcntl.ioctl(channel, SIOCETHTOOL, interface)

        with contextlib.suppress(OSError):
            return find_rules(ask)
    return ()


def find_rules(ask: Ask) -> tuple[NicRule, ...]:
    """Return HARP's rules in the NIC that is asked."""
    size, places = _list(ask)
    found = (_rule_at(ask, place, size) for place in places)
    return tuple(rule for rule in found if rule is not None)


def _list(ask: Ask) -> tuple[int, list[int]]:
    """Return the size of the NIC's table and the places that are taken."""
    for last in range(LIST_TRIES):
        count = Request(command=GET_COUNT)
        ask(count)
        listed = Request(command=GET_ALL, count=count.count)  # just as many as there are: mlx5 wants that
        if count.count > RULES_MAX:
            break
        try:
            ask(listed)
        except OSError as error:
            if error.errno not in {errno.EMSGSIZE, errno.EINVAL} or last == LIST_TRIES - 1:
                raise
            continue
        size = listed.data & ~PLACE_SPECIAL & 0xFFFFFFFF
        return size, list(listed.places[: min(count.count, listed.count)]) if size else []
    return 0, []


def _rule_at(ask: Ask, place: int, size: int) -> NicRule | None:
    request = Request(command=GET_RULE, flow=Flow(location=place))
    try:
        ask(request)
    except OSError:
        return None
    flow = request.flow
    kind = flow.flow_type & ~(FLOW_EXT | FLOW_MAC_EXT)
    if kind not in MATCH or (kind != flow.flow_type and any(flow.more_masks)):
        return None
    _source, address, _source_port, port, _tos = MATCH[kind].unpack_from(bytes(flow.values))
    source_mask, mask, source_port_mask, port_mask, tos_mask = MATCH[kind].unpack_from(bytes(flow.masks))
    is_exact = mask == EXACT * len(mask) and port_mask == EXACT * 2
    is_wild = source_mask == WILD * len(mask) and source_port_mask == WILD * 2 and not tos_mask
    number = int.from_bytes(port, "big")
    if not is_exact or not is_wild or place != location(number, size):
        return None
    return NicRule(location=place, address=str(ipaddress.ip_address(address)), port=number)
