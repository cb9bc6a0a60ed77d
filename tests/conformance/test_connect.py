# SPDX-License-Identifier: Apache-2.0
"""Listen, connect and accept: in any order, many times, with invalid handles, and left half-way."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import abi
from tests.conformance.driver import (
    WAIT_S,
    Buffer,
    Net,
    Pair,
    ffi,
    in_threads,
    open_files,
    pattern_bytes,
    poll_until,
    thread_count,
)

NCCL_SOCKET_MAGIC = (0x564AB9F2FC4B9D6C).to_bytes(8, "little")
GUARD = b"\x5a" * 64


def test_handle_fits(net: Net) -> None:
    """Not a byte is written behind NCCL's room for a handle; with v4 that is 64 bytes."""
    room = abi.handle_bytes(net.version)
    memory = ffi.new("char[]", room + len(GUARD))
    ffi.buffer(memory)[room:] = GUARD
    result, _, listen = net.listen(handle=memory)
    assert result == abi.SUCCESS
    assert bytes(ffi.buffer(memory)[0:8]) != bytes(8)
    pair = Pair(net, *net.meet(memory, listen))
    assert bytes(ffi.buffer(memory)[room:]) == GUARD
    pair.transfer([b"hello"])
    pair.close()
    net.close_listen(listen)


def test_handle_needs_only_64_bytes(net: Net) -> None:
    """All versions' handles are the v4 handle, so hosts with different NCCLs understand each other."""
    _, handle, listen = net.listen()
    short = ffi.new("char[]", 64 + len(GUARD))
    ffi.buffer(short)[:64] = ffi.buffer(handle)[:64]
    ffi.buffer(short)[64:] = GUARD
    pair = Pair(net, *net.meet(short, listen))
    pair.transfer([b"hello"])
    assert bytes(ffi.buffer(short)[64:]) == GUARD
    pair.close()
    net.close_listen(listen)


def test_connect_long_before_accept(net: Net) -> None:
    if net.version == 4:
        pytest.skip("connect waits for the peer there: see the tests with threads")
    _, handle, listen = net.listen()
    sender = ffi.NULL
    for _ in range(200):
        if sender == ffi.NULL:
            result, sender = net.connect(handle)
            assert result == abi.SUCCESS
    pair = Pair(net, *net.meet(handle, listen, sender))
    pair.transfer([b"hello"])
    pair.close()
    net.close_listen(listen)


def test_accept_long_before_connect(net: Net) -> None:
    if net.version == 4:
        pytest.skip("accept waits for the peer there: see the tests with threads")
    _, handle, listen = net.listen()
    for _ in range(200):
        assert net.accept(listen) == (abi.SUCCESS, ffi.NULL)
    pair = Pair(net, *net.meet(handle, listen))
    pair.transfer([b"hello"])
    pair.close()
    net.close_listen(listen)


def test_two_threads_meet(net: Net) -> None:
    """One thread connects, another accepts; with v4 each call waits."""
    _, handle, listen = net.listen()
    ends: dict[str, Any] = {}
    in_threads(
        lambda: ends.update(receiver=net.accepted(listen)),
        lambda: ends.update(sender=net.connected(handle)),
    )
    pair = Pair(net, ends["sender"], ends["receiver"])
    pair.transfer([b"hello"])
    pair.close()
    net.close_listen(listen)


def test_two_ranks_connect_to_each_other_first(net: Net) -> None:
    """Each of two threads listens, connects to the other, and only then accepts: neither waits forever."""
    listens = [net.listen() for _ in range(2)]
    ends: dict[str, Any] = {}

    def rank(me: int) -> None:
        ends[f"sender{me}"] = net.connected(listens[1 - me][1])
        ends[f"receiver{me}"] = net.accepted(listens[me][2])

    in_threads(lambda: rank(0), lambda: rank(1))
    for me in range(2):
        pair = Pair(net, ends[f"sender{me}"], ends[f"receiver{1 - me}"])
        pair.transfer([b"hello" * (me + 1)])
        pair.close()
    for _, _, listen in listens:
        net.close_listen(listen)


def test_one_listen_many_accepts(net: Net) -> None:
    """Ten connections to one listening comm, each by a copy of its handle, all open at once."""
    room = abi.handle_bytes(net.version)
    _, handle, listen = net.listen()
    copies = [ffi.new("char[]", bytes(ffi.buffer(handle)[:room])) for _ in range(10)]
    pairs = [Pair(net, *net.meet(copy, listen)) for copy in copies]
    for number, pair in enumerate(pairs):
        pair.transfer([bytes([number]) * 1000])
    for pair in pairs:
        pair.close()
    assert net.close_listen(listen) == abi.SUCCESS


def test_connection_outlives_its_listen(net: Net) -> None:
    with net.pair() as pair:
        pair.transfer([b"closed before"])


def _foreign_handles(own: bytes) -> list[tuple[str, bytes]]:
    room = len(own)
    return [
        ("zeros", bytes(room)),
        ("ones", b"\xff" * room),
        (
            "NCCL's socket",
            (b"\x02\x00\x1f\x90\x7f\x00\x00\x01" + bytes(20) + NCCL_SOCKET_MAGIC).ljust(room, b"\0"),
        ),
        ("NCCL's magic first", NCCL_SOCKET_MAGIC.ljust(room, b"\0")),
        ("random", random.Random(1).randbytes(room)),
        ("wrong layout", own[:4] + b"\x7f\x7f" + own[6:]),
        ("no port", own[:6] + b"\0\0" + own[8:]),
        ("no address", own[:12] + b"\0\0" + own[14:]),
        ("too many addresses", own[:12] + b"\xff\xff" + own[14:]),
    ]


def test_foreign_handle(net: Net) -> None:
    """Another plugin's handle, or rubbish, is an error at once, with one WARN of what it may be."""
    room = abi.handle_bytes(net.version)
    _, handle, listen = net.listen()
    for what, data in _foreign_handles(bytes(ffi.buffer(handle)[:room])):
        result, comm = net.connect(ffi.new("char[]", data))
        assert result not in (abi.SUCCESS, 7), what
        assert comm == ffi.NULL, what
        warns = net.warns()
        assert len(warns) == 1, what
        assert "handle" in warns[0], what
    pair = Pair(net, *net.meet(handle, listen))
    pair.transfer([b"the real one still works"])
    pair.close()
    net.close_listen(listen)


def test_unauthenticated_clients_do_no_harm(net: Net) -> None:
    """Clients that connect to the listening port and send nothing, or garbage, do no harm."""
    _, handle, listen = net.listen()
    port = int.from_bytes(ffi.buffer(handle)[6:8], "big")
    silent = [socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) for _ in range(8)]
    loud = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    loud.sendall(random.Random(2).randbytes(100))
    pair = Pair(net, *net.meet(handle, listen))
    pair.transfer([b"hello"])
    pair.close()
    net.close_listen(listen)
    for client in (*silent, loud):
        client.close()


def test_traffic_class(version: int) -> None:
    if version < 10:
        pytest.skip("no such thing before v10")
    net = Net(version)
    assert net.init(traffic_class=96) == abi.SUCCESS
    _, handle, listen = net.listen()
    ends: list[Any] = [ffi.NULL, ffi.NULL]

    def poll() -> bool:
        if ends[0] == ffi.NULL:
            ends[0] = net.connect(handle, traffic_class=96)[1]
        if ends[1] == ffi.NULL:
            ends[1] = net.accept(listen)[1]
        return ffi.NULL not in ends

    poll_until("connected", poll)
    pair = Pair(net, *ends)
    pair.transfer([b"marked" * 5000])
    pair.close()
    net.close_listen(listen)
    net.finalize()
    assert net.warns() == []


def _own_ports(protocol: str) -> set[int]:
    """Return the ports of this process's sockets of a protocol over IPv4."""
    ours = set(open_files().values())
    rows = [line.split() for line in Path(f"/proc/self/net/{protocol}").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if f"socket:[{row[9]}]" in ours}


LARGE_BYTES = 8192  # a packet on the loopback: no control connection sends such


def _marks_of_packets(tap: socket.socket) -> tuple[set[tuple[int, int]], set[int]]:
    """Return type and class of this process's datagrams to itself, and the class of its large TCP packets."""
    ports = {socket.IPPROTO_UDP: _own_ports("udp"), socket.IPPROTO_TCP: _own_ports("tcp")}
    found: set[tuple[int, int]] = set()
    tcp: set[int] = set()
    while True:
        try:
            data = tap.recv(1 << 16)
        except BlockingIOError:
            return found, tcp
        inner = data[(data[0] & 15) * 4 :]
        source, to = int.from_bytes(inner[0:2], "big"), int.from_bytes(inner[2:4], "big")
        if not {source, to} <= ports.get(data[9], set()):
            continue
        if data[9] == socket.IPPROTO_UDP:
            found.add((inner[8 + 5], data[1]))
        elif len(data) > LARGE_BYTES:
            tcp.add(data[1])


@pytest.mark.lab
@pytest.mark.parametrize("version", [11, 12])
def test_traffic_class_on_the_wire(version: int, request: pytest.FixtureRequest) -> None:
    """Data and acknowledgements have the class, so that a network which sorts by it queues both alike."""
    if request.config.getoption("--xdp"):
        pytest.skip("AF_XDP passes by the tap")
    if request.config.getoption("--driver"):
        pytest.skip("looks at both carriers")
    net, traffic_class, all_protocols = Net(version), 96, 3
    assert net.init(traffic_class=traffic_class) == abi.SUCCESS
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(all_protocols)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: all of it is to fit
        tap.bind(("lo", all_protocols))
        tap.setblocking(False)
        data, ack = 1, 3
        seen: set[tuple[int, int]] = set()
        tcp: set[int] = set()
        with net.pair() as pair:

            def all_are_seen() -> bool:  # a large message goes over UDP until the tcp path is up
                pair.transfer([b"small"])
                pair.transfer([b"marked" * 50_000])
                datagrams, large = _marks_of_packets(tap)
                seen.update(datagrams)
                tcp.update(large)
                return bool(tcp) and {kind for kind, _ in seen} >= {data, ack}

            poll_until("data and acknowledgements over UDP, data over TCP", all_are_seen)
    ecn = 3  # the two low bits: data is ECN-capable, acknowledgements that go alone are not
    assert {mark & ~ecn for _, mark in seen} == {traffic_class}
    assert tcp == {traffic_class}
    assert net.finalize() == abi.SUCCESS


@pytest.mark.parametrize("version", [11, 12])
def test_finalize_reaps_what_is_half_open(version: int) -> None:
    """On abort NCCL closes neither listening comms nor connects under way."""
    threads, files = thread_count(), open_files()
    net = Net(version)
    assert net.init() == abi.SUCCESS
    for _ in range(5):
        _, handle, listen = net.listen()
        _, sender = net.connect(handle)  # the two may meet at once; those are comms, for NCCL to close
        _, receiver = net.accept(listen)
        net.close_send(sender)
        net.close_receive(receiver)
        net.listen()
    assert len(open_files()) > len(files)
    assert net.finalize() == abi.SUCCESS
    assert open_files() == files
    assert thread_count() == threads
    assert net.warns() == []


def test_closing_everything_leaves_nothing(net: Net) -> None:
    threads, files = thread_count(), open_files()
    for _ in range(3):
        with net.pair() as one, net.pair() as two:
            one.transfer([b"hello"])
            two.transfer([b"hello" * 50_000])
            assert len(open_files()) > len(files)
    assert open_files() == files
    assert thread_count() == threads


def test_close_null(net: Net) -> None:
    assert net.close_send(ffi.NULL) == abi.SUCCESS
    assert net.close_receive(ffi.NULL) == abi.SUCCESS
    assert net.close_listen(ffi.NULL) == abi.SUCCESS


def test_close_with_requests_in_flight(net: Net) -> None:
    """Close waits for nobody, in either order, and leaves nothing behind."""
    files = open_files()
    for sender_first in (True, False):
        with net.pair() as pair:
            place, source = Buffer(1 << 20), Buffer(1 << 20, pattern_bytes(1 << 20, 1))
            for _ in range(8):
                pair.post_receive(place)
                pair.post_send(source)
            if sender_first:
                pair.close_send()
            else:
                pair.close_receive()
    assert open_files() == files
