# SPDX-License-Identifier: Apache-2.0
"""The ports of a peer's range that packets reach: each gets a datagram and a SYN, and a responder sees them.

The peer's kernel would refuse a datagram to a port without a socket only about once in a second, and a
firewall's refusal of a connection looks like the kernel's. So the responder over there says which ports it
saw (port_watch.py); what it did not see is sent again.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from harpctl.doctor.probe_packet import PORT_BYTES, REPORT_BYTES, make_watch, probe_of
from harpctl.ip import family_of
from harpctl.units import number_ranges

ROUNDS = 4  # a packet that is lost so often is closed out
PACKETS_PER_S = 20_000
BURST = 64  # packets between two looks at the clock
LATE_S = 0.2  # from the last packet to the question what was seen
TCP_WAIT_S = 5.0
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h

Ranges = tuple[tuple[int, int], ...]


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of a range that packets do not reach, by protocol."""

    why_not: str = ""  # why it was not done; "" where it was
    udp: Ranges = ()
    tcp: Ranges = ()


def sweep_ports(source: str, peer: str, port: int, ports: tuple[int, int], within_s: float) -> Sweep:
    """Send to all ports of a range, from one of our addresses; the peer's responder listens on `port`."""
    end = time.monotonic() + within_s
    wanted = range(ports[0], ports[1] + 1)
    try:
        with socket.create_connection((peer, port), TCP_WAIT_S, (source, 0)) as control:
            watch = make_watch()
            control.sendall(watch)
            if control.recv(1) != b"+":
                return Sweep(why_not=f"the responder of {peer} does not see all ports: run it as root")
            missing: tuple[Sequence[int], Sequence[int]] = (wanted, wanted)
            for _ in range(ROUNDS):
                if not any(missing) or time.monotonic() > end:
                    break
                _send_datagrams(source, peer, probe_of(watch), missing[0], end)
                _send_syns(source, peer, missing[1], end)
                missing = _ask_for_missing(control, missing)
            if any(missing) and time.monotonic() > end:
                return Sweep(why_not=f"{len(wanted)} ports were not done in time")
            return Sweep(udp=tuple(number_ranges(missing[0])), tcp=tuple(number_ranges(missing[1])))
    except OSError as error:
        return Sweep(why_not=f"port {port} of {peer}: {os.strerror(error.errno or errno.ETIMEDOUT).lower()}")


def _send_paced(ports: Sequence[int], send: Callable[[int], None], end: float) -> None:
    begin = time.monotonic()
    for count, port in enumerate(ports):
        if count % BURST == 0:
            ahead = begin + count / PACKETS_PER_S - time.monotonic()
            time.sleep(max(ahead, 0.0))
            if time.monotonic() > end:
                return
        with suppress(OSError):  # our own firewall refuses it, or there is no room: it was not seen
            send(port)


def _send_datagrams(source: str, peer: str, data: bytes, ports: Sequence[int], end: float) -> None:
    with socket.socket(family_of(peer), socket.SOCK_DGRAM) as out:
        out.bind((source, 0))

        def send(port: int) -> None:
            out.sendto(data, (peer, port))

        _send_paced(ports, send, end)


def _send_syns(source: str, peer: str, ports: Sequence[int], end: float) -> None:
    """Begin a connection to each port, and give it up at once."""

    def send(port: int) -> None:
        with socket.socket(family_of(peer), socket.SOCK_STREAM) as out:
            out.setblocking(False)
            out.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            out.bind((source, 0))
            out.connect_ex((peer, port))

    _send_paced(ports, send, end)


def _ask_for_missing(
    control: socket.socket, sent: tuple[Sequence[int], Sequence[int]]
) -> tuple[Sequence[int], Sequence[int]]:
    """Ask what was seen; return the ports that were not."""
    time.sleep(LATE_S)
    control.sendall(b"?")
    report = b""
    while len(report) < REPORT_BYTES:
        part = control.recv(REPORT_BYTES - len(report))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "")
        report += part
    udp, tcp = report[:PORT_BYTES], report[PORT_BYTES:]
    return [port for port in sent[0] if not _is_in(udp, port)], [port for port in sent[1] if not _is_in(tcp, port)]


def _is_in(seen: bytes, port: int) -> bool:
    return bool(seen[port >> 3] >> (port & 7) & 1)
