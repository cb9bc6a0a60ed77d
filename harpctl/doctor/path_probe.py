# SPDX-License-Identifier: Apache-2.0
"""Probes a peer from one ENI: UDP at full MTU with DF set, and TCP.

A responder (`harpctl doctor --serve` over there) echoes, which proves both directions. Without one the peer's
kernel refuses the port, which proves the direction there. Kernels limit such refusals to about one per
second for each sender, so that silence counts only after several tries.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import msgspec

from harpctl.doctor.probe_packet import (
    HEAD_BYTES,
    UDP_IP_BYTES,
    answer_to,
    forbid_fragments,
    make_request,
    payload_bytes,
)
from harpctl.ip import family_of

ECHO, REFUSED, SILENT, TOO_BIG = "echo", "refused", "silent", "too big"
ANSWERED = (ECHO, REFUSED)
TRIES = 3
WAIT_S = 1.1  # longer than a kernel's pause between two refusals
TCP_WAIT_S = 3.0
# Sizes that networks are known to stop at: jumbo Ethernet, clouds, tunnels, IPv6's least.
MTUS = (9001, 9000, 8950, 8896, 8500, 4352, 4096, 1500, 1492, 1480, 1460, 1450, 1442, 1420, 1400, 1280, 576)


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe. Outcomes are "echo", "refused", "silent", "too big", or the system's words."""

    udp: str  # the answer to the smallest datagram
    full: str = ""  # the answer to a packet of the whole MTU; "" when not even the smallest was answered
    passed: int = 0  # the largest packet that was answered, in bytes
    ports: dict[int, str] = {}  # UDP ports tried beside the responder's
    tcp: dict[int, str] = {}


def probe_path(source: str, peer: str, port: int, mtu: int, ports: Sequence[int]) -> ProbeResult:
    """Probe the path from one of our addresses to one of a peer's; takes up to about 14 s without answers."""
    ip_family = family_of(peer)
    whole = payload_bytes(mtu, ip_family)

    def tcp_result(number: int) -> str:
        return probe_tcp(source, peer, number)

    def udp_result(number: int, size: int = HEAD_BYTES) -> str:
        return probe_udp(source, peer, number, [size])[size]

    with ThreadPoolExecutor(2 * len(ports) + 1) as pool:
        tcp_results = pool.map(tcp_result, (port, *ports))
        udp = udp_result(port)
        # The search for the MTU would use up the refusals that the ports are to get.
        tried = dict(zip(ports, pool.map(udp_result, ports), strict=True)) if udp in ANSWERED else {}
        full = udp_result(port, whole) if udp in ANSWERED else ""
        passed = mtu if full in ANSWERED else 0
        if full and not passed:
            passed = _find_largest(source, peer, port, mtu)
        tcp = dict(zip((port, *ports), tcp_results, strict=True))
    return ProbeResult(udp=udp, full=full, passed=passed, ports=tried, tcp=tcp)


def _find_largest(source: str, peer: str, port: int, mtu: int) -> int:
    """Return the largest of the usual packet sizes below the MTU that is answered."""
    ip_family = family_of(peer)
    sizes = {payload_bytes(size, ip_family): size for size in MTUS if size < mtu}
    found = probe_udp(source, peer, port, list(sizes))
    small = HEAD_BYTES + UDP_IP_BYTES[ip_family]
    return max((sizes[payload] for payload, outcome in found.items() if outcome in ANSWERED), default=small)


def probe_udp(source: str, peer: str, port: int, sizes: Sequence[int], wait_s: float = WAIT_S) -> dict[int, str]:
    """Send one datagram of each payload size, repeated without an answer; return each one's outcome."""
    outcomes: dict[int, str] = {}
    with ExitStack() as stack:
        sockets: dict[int, socket.socket] = {}
        for size in sizes:
            try:
                sockets[size] = stack.enter_context(_open_socket(source, peer, port))
            except OSError as error:
                outcomes[size] = _describe_error(error)
        requests = {size: make_request(size) for size in sockets}
        for _ in range(TRIES):
            waiting = [size for size in sockets if size not in outcomes]
            for size in waiting:
                try:
                    sockets[size].send(requests[size])
                except OSError as error:
                    outcomes[size] = _describe_error(error)
            _gather_answers(sockets, requests, outcomes, wait_s)
    return {size: outcomes.get(size, SILENT) for size in sizes}


def _gather_answers(
    sockets: dict[int, socket.socket], requests: dict[int, bytes], outcomes: dict[int, str], wait_s: float
) -> None:
    """Receive answers until all have arrived or the time is up."""
    end = time.monotonic() + wait_s
    while waiting := {sockets[size]: size for size in sockets if size not in outcomes}:
        ready = select.select(list(waiting), [], [], max(0.0, end - time.monotonic()))[0]
        if not ready:
            return
        for one in ready:
            size = waiting[one]
            try:
                if one.recv(1 << 16) == answer_to(requests[size]):
                    outcomes[size] = ECHO
            except OSError as error:
                outcomes[size] = _describe_error(error)


def probe_tcp(source: str, peer: str, port: int, wait_s: float = TCP_WAIT_S) -> str:
    """Open a TCP connection and close it; a refusal proves reachability as well."""
    with socket.socket(family_of(peer), socket.SOCK_STREAM) as out:
        out.settimeout(wait_s)
        try:
            out.bind((source, 0))
            out.connect((peer, port))
        except TimeoutError:
            return SILENT
        except OSError as error:
            return _describe_error(error)
        with suppress(OSError):
            out.shutdown(socket.SHUT_RDWR)
    return ECHO


def _open_socket(source: str, peer: str, port: int) -> socket.socket:
    out = socket.socket(family_of(peer), socket.SOCK_DGRAM)
    try:
        forbid_fragments(out)
        out.bind((source, 0))
        out.connect((peer, port))
        out.setblocking(False)
    except OSError:
        out.close()
        raise
    return out


def _describe_error(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return REFUSED
    return TOO_BIG if error.errno == errno.EMSGSIZE else os.strerror(error.errno or 0).lower()
