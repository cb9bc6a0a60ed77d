# SPDX-License-Identifier: Apache-2.0
"""The datagram that doctor sends to a peer, and the peer's responder sends back.

24 bytes of head, then zeros up to the size to be tried. The answer has the request's size and nonce, so that
it proves both directions at that size, and cannot amplify traffic.
"""

from __future__ import annotations

import secrets
import socket

PORT = 17700
PORT_MIN, PORT_MAX = 1024, 65535  # the ports that an operator may choose
MAGIC = b"HARPdoc1"
REQUEST, ANSWER = b"?", b"!"
WATCH, PROBE = b"W", b"#"  # begins a watch over TCP; a datagram to any port, which is noted and not answered
NONCE_BYTES = 15
HEAD_BYTES = len(MAGIC) + 1 + NONCE_BYTES
PORT_BYTES = (1 << 16) // 8  # a bit for each port
REPORT_BYTES = 2 * PORT_BYTES  # the ports of UDP, then of TCP
DATAGRAM_BYTES_MAX = 65_507  # IPv4's
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_PROBE = 10, 23, 3  # linux/in.h
IPV6_DONTFRAG = 62
UDP_IP_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}


def make_request(size: int) -> bytes:
    """Make a request of so many bytes, at least the head's."""
    head = MAGIC + REQUEST + secrets.token_bytes(NONCE_BYTES)
    return head.ljust(size, b"\0")


def answer_to(request: bytes) -> bytes | None:
    """Return the answer to a request; None for what is none."""
    if len(request) < HEAD_BYTES or not request.startswith(MAGIC + REQUEST):
        return None
    return MAGIC + ANSWER + request[len(MAGIC) + 1 :]


def make_watch() -> bytes:
    """Return what begins a watch of ports (port_watch.py) on a connection."""
    return MAGIC + WATCH + secrets.token_bytes(NONCE_BYTES)


def nonce_of_watch(request: bytes) -> bytes | None:
    """Return the nonce of such a request; None for what is none."""
    return request[-NONCE_BYTES:] if request.startswith(MAGIC + WATCH) and len(request) == HEAD_BYTES else None


def probe_of(watch: bytes) -> bytes:
    """Return the datagram that belongs to a watch."""
    return MAGIC + PROBE + watch[-NONCE_BYTES:]


def nonce_of_probe(datagram: bytes) -> bytes | None:
    """Return the nonce of such a datagram; None for what is none."""
    return datagram[len(MAGIC) + 1 :] if datagram.startswith(MAGIC + PROBE) else None


def forbid_fragments(out: socket.socket) -> None:
    """Send whole or not at all, with DF set, whatever path MTU the kernel remembers."""
    if out.family == socket.AF_INET6:
        out.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
        out.setsockopt(socket.IPPROTO_IPV6, IPV6_DONTFRAG, 1)
    else:
        out.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)


def payload_bytes(mtu: int, family: int) -> int:
    """Return the UDP payload that fills an IP packet of a size."""
    return min(mtu - UDP_IP_BYTES[socket.AddressFamily(family)], DATAGRAM_BYTES_MAX)
