# SPDX-License-Identifier: Apache-2.0
"""The responder's part of a sweep of ports (port_sweep.py): which ports packets of another host came to.

Raw sockets see what the firewall let in, whether or not a socket has the port. They are there while somebody
asks, and take probes and SYNs alone. It needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import time

import msgspec

from harpctl.doctor.probe_packet import HEAD_BYTES, MAGIC, PORT_BYTES, nonce_of_probe
from harpctl.ip import is_ipv6

WATCHES_MAX = 256
WATCH_S = 120.0
PACKETS_PER_TURN = 512
BUFFER_BYTES = 16 << 20
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33  # asm-generic/socket.h
TCP_FLAGS_AT, SYN, SYN_ACK = 13, 0x02, 0x12
UDP_PAYLOAD_AT = 8
# Instructions of classic BPF (linux/filter.h): X = length of IPv4's header; load; compare; accept or not.
LOAD_X, LOAD_WORD, LOAD_WORD_X, LOAD_BYTE, LOAD_BYTE_X = 0xB1, 0x20, 0x40, 0x30, 0x50
AND, JUMP_EQUAL, RETURN = 0x54, 0x15, 0x06
Program = list[tuple[int, int, int, int]]


class Watch(msgspec.Struct, kw_only=True):
    """The request of one host: the ports of its probes and SYNs to one of our addresses."""

    address: str
    source: str
    nonce: bytes
    until: float
    udp: bytearray
    tcp: bytearray

    def report(self) -> bytes:
        """Return both sets of ports, a bit for each."""
        return bytes(self.udp + self.tcp)


class PortWatch:
    """Raw sockets on an address, while there are watches of it."""

    def __init__(self) -> None:
        self._watches: list[Watch] = []
        self._stack = contextlib.ExitStack()
        self._sockets: dict[tuple[str, int], socket.socket] = {}

    def close(self) -> None:
        """Close the sockets."""
        self._stack.close()
        self._sockets.clear()

    def begin(self, address: str, source: str, nonce: bytes) -> Watch | None:
        """Begin to watch; None where this process may not, or watches too much already."""
        now = time.monotonic()
        self._watches = [one for one in self._watches if one.until > now]
        if len(self._watches) >= WATCHES_MAX or not self._open_sockets(address):
            return None
        bits = bytearray(PORT_BYTES)
        watch = Watch(
            address=address,
            source=source,
            nonce=nonce,
            until=now + WATCH_S,
            udp=bits,
            tcp=bytearray(PORT_BYTES),
        )
        self._watches.append(watch)
        return watch

    def end(self, watch: Watch) -> bool:
        """End a watch; return whether it was the last one, so that the sockets are of no use."""
        self._watches = [one for one in self._watches if one is not watch]
        return not self._watches

    def _open_sockets(self, address: str) -> bool:
        try:
            for protocol in (socket.IPPROTO_UDP, socket.IPPROTO_TCP):
                if (address, protocol) not in self._sockets:
                    one = self._stack.enter_context(_raw_socket(address, protocol))
                    self._sockets[address, protocol] = one
        except OSError:
            return False
        return True

    def read(self, most: int = PACKETS_PER_TURN) -> None:
        """Note what has come, so many packets of each socket at most."""
        for (address, protocol), one in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                for _ in range(most):
                    packet, sender = one.recvfrom(256)
                    self._record_packet(address, protocol, packet, str(sender[0]).partition("%")[0])

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets to wait for."""
        return list(self._sockets.values())

    def _record_packet(self, address: str, protocol: int, packet: bytes, source: str) -> None:
        at = 0 if is_ipv6(address) else (packet[0] & 15) * 4
        if len(packet) < at + UDP_PAYLOAD_AT:
            return
        port = int(struct.unpack_from("!H", packet, at + 2)[0])
        is_tcp = protocol == socket.IPPROTO_TCP
        nonce = None if is_tcp else nonce_of_probe(packet[at + UDP_PAYLOAD_AT :][:HEAD_BYTES])
        for watch in self._watches:
            if watch.address == address and (watch.source == source if is_tcp else watch.nonce == nonce):
                seen = watch.tcp if is_tcp else watch.udp
                seen[port >> 3] |= 1 << (port & 7)


def _raw_socket(address: str, protocol: int) -> socket.socket:
    version = socket.AF_INET6 if is_ipv6(address) else socket.AF_INET
    one = socket.socket(version, socket.SOCK_RAW, protocol)
    try:
        program = b"".join(struct.pack("=HBBI", *step) for step in _filter_program(version, protocol))
        steps = ctypes.create_string_buffer(program)
        one.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)),
        )
        one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        one.bind((address, 0))
        one.setblocking(False)
    except OSError:
        one.close()
        raise
    return one


def _filter_program(version: int, protocol: int) -> Program:
    """Return the filter that takes probes or SYNs. IPv6's header is not part of the packet, IPv4's is."""
    is_v4 = version == socket.AF_INET
    begin: Program = [(LOAD_X, 0, 0, 0)] if is_v4 else []
    if protocol == socket.IPPROTO_UDP:
        word = int.from_bytes(MAGIC[:4], "big")
        begin += [(LOAD_WORD_X if is_v4 else LOAD_WORD, 0, 0, UDP_PAYLOAD_AT), (JUMP_EQUAL, 0, 1, word)]
    else:
        begin += [
            (LOAD_BYTE_X if is_v4 else LOAD_BYTE, 0, 0, TCP_FLAGS_AT),
            (AND, 0, 0, SYN_ACK),
            (JUMP_EQUAL, 0, 1, SYN),
        ]
    return [*begin, (RETURN, 0, 0, 0xFFFF), (RETURN, 0, 0, 0)]
