# SPDX-License-Identifier: Apache-2.0
"""Differences between IPv4 and IPv6 addresses, both as text."""

from __future__ import annotations

import socket
from collections.abc import Sequence


def is_ipv6(address: str) -> bool:
    """Return whether an address is one of IPv6, by its colons."""
    return ":" in address


def family_of(address: str) -> socket.AddressFamily:
    """Return the socket family of an address."""
    return socket.AF_INET6 if is_ipv6(address) else socket.AF_INET


def same_version(one: str, other: str) -> bool:
    """Return whether two addresses are of one version of IP."""
    return is_ipv6(one) == is_ipv6(other)


def first_address(addresses: Sequence[str]) -> str:
    """Return the first of an interface's addresses without its prefix length; "" without any."""
    return addresses[0].partition("/")[0] if addresses else ""
