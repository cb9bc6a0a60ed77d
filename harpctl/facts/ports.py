# SPDX-License-Identifier: Apache-2.0
"""UDP ports that processes of our network namespace have, from /proc/net/udp and /proc/net/udp6."""

from __future__ import annotations

import ipaddress
import re
import struct

from harpctl.facts import text
from harpctl.host.host import Host

UDP, UDP6 = "/proc/net/udp", "/proc/net/udp6"
LOCAL = re.compile(r"^\s*[0-9]+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) ", re.MULTILINE | re.ASCII)


def udp_ports(host: Host) -> set[tuple[str, int]] | None:
    """Return address and port of each UDP socket; None where the host does not show them."""
    shown = text.read(host, UDP)
    if not shown:
        return None
    found = LOCAL.findall(shown + "\n" + text.read(host, UDP6))
    return {(_address(words), int(port, 16)) for words, port in found}


def has_port(ports: set[tuple[str, int]], address: str, port: int) -> bool:
    """Return whether a socket gets what comes to this address and port: its own, or one for all addresses."""
    return not ports.isdisjoint({(address, port), ("0.0.0.0", port), ("::", port)})  # noqa: S104 - no bind


def _address(words: str) -> str:
    """Read an address that the kernel prints as words of its own byte order."""
    raw = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    return str(ipaddress.ip_address(raw))
