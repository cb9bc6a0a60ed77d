# SPDX-License-Identifier: Apache-2.0
"""Two processes: any two versions, many connections, dead and stopped peers, connects that fail."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import abi
from tests.conformance.child import (
    ENVIRONMENT,
    NEW_AND_OLD,
    Child,
    Start,
    expect_soon,
    fail_after,
)
from tests.conformance.children.crowd import CROWD
from tests.conformance.driver import Buffer, Net, Request, ffi, handle_of, pattern_bytes, poll_until, text_of

UNACCEPTED_MAX, GUESTS_MAX = 8, 64  # a listener's limits
GROWN_BYTES = 4 << 20  # what connects that are given up may leave


class Peer:
    """The other end of a connection, in a process that listens."""

    def __init__(self, child: Child, net: Net) -> None:
        self.child, self.net = child, net
        first = child.read_line()
        self.pid: int = first["pid"]
        handle = handle_of(first["handle"])
        self.comm = net.connected(handle)
        assert child.read_line() == {"accepted": True}

    def send(self, buffer: Buffer) -> Request:
        return self.net.started(lambda: self.net.send(self.comm, buffer.address, buffer.size))


@pytest.mark.parametrize("version", NEW_AND_OLD)
@pytest.mark.parametrize("other", [4, 8, 12])
def test_two_processes_of_any_two_versions(net: Net, other: int, start: Start) -> None:
    """NCCL's versions need not be the same on both sides."""
    peer = Peer(start("receiver", other), net)
    data = [pattern_bytes(size, size) for size in (0, 9, 20_000, 2_000_000)]
    peer.child.send_line(n=4, size=2_000_000)
    assert peer.child.read_line() == {"posted": True}
    sources = [Buffer(len(d), d) for d in data]
    net.finish(*[peer.send(source) for source in sources])
    got = peer.child.read_line()
    assert got == {
        "results": [0] * 4,
        "sizes": [len(d) for d in data],
        "sums": [sum(d) for d in data],
        "warns": [],
    }
    assert net.close_send(peer.comm) == abi.SUCCESS
    peer.child.end()


CROSSINGS, CROSSING_THREADS = 12, 4
PEERS, COMMS = 8, 2048
COMM_BYTES, COMMS_BYTES = 200_000, 300_000_000  # what may be taken for each comm, and for all
# To open a stream takes less than 100 us in the lab; the fastest of many, on a loaded machine too, less than
# this. A timer or a poll that one of the sides waited for would be in each of them.
FASTEST_US = 900


@pytest.mark.parametrize("version", NEW_AND_OLD)
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_connects_that_cross_make_one_connection(version: int, engine: str, start: Start) -> None:
    """Each process connects to the other at once; both closes all, and again."""
    environment = {**ENVIRONMENT, "HARP_ENGINE": engine, "HARP_DRIVER": "udp"}  # no other TCP connections
    both = [start("cross", version, environment) for _ in range(2)]
    for _ in range(CROSSINGS):
        for child in both:
            child.send_line(n=CROSSING_THREADS)
        handles = [child.read_line()["handles"] for child in both]
        for child, theirs in zip(both, reversed(handles), strict=True):
            child.send_line(handles=theirs)
        for child in both:
            met = child.read_line()
            assert met["warns"] == []
            assert len(met["control"]) == 1
        for child in both:
            child.send_line()
        for child in both:
            assert child.read_line() == {"closed": True}


def test_many_comms_of_few_peers(start: Start) -> None:
    """One control connection for each peer, and bounded memory for each comm."""
    environment = {**ENVIRONMENT, "HARP_DRIVER": "udp"}  # no other TCP connections than those of control
    hub, *spokes = children = [start("scale", 12, environment) for _ in range(1 + PEERS)]
    each = COMMS // PEERS // 2
    for child in children:
        child.send_line()
    handles = [child.read_line()["handle"] for child in children]
    hub.send_line(handles=handles[1:], connects=each, accepts=PEERS * each)
    for spoke in spokes:
        spoke.send_line(handles=handles[:1], connects=each, accepts=each)
    for step in "met", "sent":
        for child in children:
            assert child.read_line() == {step: True}
        for child in children:
            child.send_line()
    got = [child.read_line() for child in children]
    print(f"{COMMS} comms with {PEERS} processes: {got[0]['bytes'] >> 20} MiB resident,", end=" ")
    print(f"{got[0]['bytes'] // COMMS >> 10} KiB a comm")
    assert [one["warns"] for one in got] == [[]] * len(children)
    assert [one["control"] for one in got] == [PEERS] + [1] * PEERS
    assert got[0]["bytes"] < min(COMMS * COMM_BYTES, COMMS_BYTES)
    for child in children:
        child.send_line()
        child.end()


def test_a_further_stream_opens_soon(start: Start) -> None:
    """One round trip on the control connection: no timer of either side is waited for."""
    one, other = (start("scale", 12) for _ in range(2))
    for child in (one, other):
        child.send_line()
    handles = [child.read_line()["handle"] for child in (one, other)]
    one.send_line(handles=handles[1:], connects=COMMS // PEERS, accepts=0)
    other.send_line(handles=[], connects=0, accepts=COMMS // PEERS)
    for step in "met", "sent":
        for child in (one, other):
            assert child.read_line() == {step: True}
        for child in (one, other):
            child.send_line()
    _handshake, *further = one.read_line()["connect_us"]
    times = sorted(further)
    print(f"connect takes {times[len(times) // 10]}, {times[len(times) // 2]} and", end=" ")
    print(f"{times[len(times) * 9 // 10]} us (10th, 50th and 90th of 100), at least {times[0]}")
    assert other.read_line()["warns"] == []
    assert times[0] < FASTEST_US
    for child in (one, other):
        child.send_line()
        child.end()


@pytest.mark.parametrize("version", NEW_AND_OLD)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@expect_soon
def test_receiving_peer_dies(net: Net, number: signal.Signals, start: Start) -> float:
    """A remote error, soon, with one WARN that names the process."""
    peer = Peer(start("receiver", net.version), net)
    request = peer.send(Buffer(1 << 20, pattern_bytes(1 << 20, 1)))
    peer.child.process.send_signal(number)
    took = fail_after(net, request)
    (warn,) = net.warns()
    assert f"process {peer.pid}" in warn
    assert "127.0.0.1" in warn
    later = net.send(peer.comm, ffi.NULL, 0)
    assert later.result == abi.remote_error(net.version)
    assert net.warns() == []
    assert net.close_send(peer.comm) == abi.SUCCESS
    return took


@pytest.mark.parametrize("version", NEW_AND_OLD)
@expect_soon
def test_sending_peer_dies(net: Net, start: Start) -> float:
    _, handle, listen = net.listen()
    child = start("sender", net.version)
    child.send_line(handle=text_of(handle))
    comm = net.accepted(listen)
    pid = child.read_line()["pid"]
    place = Buffer(1 << 20)
    request = net.receive(comm, place.address, place.size)
    for _ in range(20):
        assert not net.test(request)
    child.process.kill()
    took = fail_after(net, request)
    (warn,) = net.warns()
    assert f"process {pid}" in warn
    net.close_receive(comm)
    net.close_listen(listen)
    return took


@pytest.mark.parametrize("version", [12])
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_one_handle_gets_few_connections(version: int, engine: str, start: Start) -> None:
    """Who knows a handle and connects without end gets a few connections; the rest of the process goes on."""
    environment = {**ENVIRONMENT, "HARP_ENGINE": engine}
    victim = start("overrun", version, environment)
    others = start("crowd", version, {**environment, "HARP_PEER_TIMEOUT": "1"})
    others.send_line(handle=victim.read_line()["handle"])
    assert others.read_line() == {"connected": UNACCEPTED_MAX}
    victim.send_line()
    cost = victim.read_line()
    assert cost["files"] <= UNACCEPTED_MAX + GUESTS_MAX
    assert cost["memory"] < UNACCEPTED_MAX << 20
    got = others.read_line()
    assert got["failed"] == len(got["warns"]) == CROWD - UNACCEPTED_MAX
    assert "too many connections wait there for accept" in got["warns"][0]
    victim.send_line()
    assert victim.read_line() == {"threads": 1}


@contextlib.contextmanager
def _stop_process(child: Child) -> Iterator[None]:
    child.process.send_signal(signal.SIGSTOP)
    poll_until("stopped", lambda: _process_state(child.process.pid) == "T")
    yield
    child.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def _killed_before(worker: int, child: Child) -> Iterator[None]:
    """Kill a process whose worker lives on to the end."""
    child.process.kill()
    try:
        yield
        os.kill(worker, 0)
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("version", [12])
@expect_soon
def test_receiving_peer_that_forked_in_the_handshake_dies(net: Net, start: Start) -> float:
    """A data loader's worker, forked while we connect, does not keep our connection with its parent."""
    child = start("listen_and_fork", net.version)
    handle = handle_of(child.read_line()["handle"])
    with _stop_process(child):
        assert net.connect(handle) == (abi.SUCCESS, ffi.NULL)
    worker = child.read_line()["worker"]
    comm = net.connected(handle)
    assert child.read_line() == {"accepted": True}
    source = Buffer(1 << 20)
    request = net.started(lambda: net.send(comm, source.address, source.size))
    with _killed_before(worker, child):
        took = fail_after(net, request)
    (warn,) = net.warns()
    assert f"process {child.process.pid}" in warn
    assert net.close_send(comm) == abi.SUCCESS
    return took


@pytest.mark.parametrize("version", [12])
@expect_soon
def test_sending_peer_that_forked_in_the_handshake_dies(version: int, start: Start) -> float:
    receiver, sender = start("receiver", version), start("connect_and_fork", version)
    handle = receiver.read_line()["handle"]
    with _stop_process(receiver):
        sender.send_line(handle=handle)
        worker = sender.read_line()["worker"]
    assert sender.read_line() == {"connected": True}
    assert receiver.read_line() == {"accepted": True}
    receiver.send_line(n=1, size=1 << 20)
    assert receiver.read_line() == {"posted": True}
    with _killed_before(worker, sender):
        begin = time.monotonic()
        got = receiver.read_line()
        took = time.monotonic() - begin
    assert got["results"] == [abi.remote_error(version)]
    (warn,) = got["warns"]
    assert f"process {sender.process.pid}" in warn
    return took


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_stopped_peer_is_waited_for(engine: str, start: Start) -> None:
    """A process that is stopped for longer than the peer timeout is alive: its kernel still acknowledges."""
    environment = {**ENVIRONMENT, "HARP_PEER_TIMEOUT": "1", "HARP_ENGINE": engine}
    receiver, sender = start("receiver", 12, environment), start("sender", 12, environment)
    sender.send_line(handle=receiver.read_line()["handle"])
    sender.read_line()
    receiver.read_line()
    receiver.process.send_signal(signal.SIGSTOP)
    poll_until("stopped", lambda: _process_state(receiver.process.pid) == "T")
    sender.send_line(size=3_000_000)
    time.sleep(2.5)  # the thing under test is that nothing happens for more than two peer timeouts
    receiver.process.send_signal(signal.SIGCONT)
    receiver.send_line(n=1, size=3_000_000)
    assert receiver.read_line() == {"posted": True}
    assert receiver.read_line()["results"] == [abi.SUCCESS]
    assert sender.read_line() == {"result": abi.SUCCESS}


def _process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


# ---- connects that must fail ----

SHORT = {**ENVIRONMENT, "HARP_PEER_TIMEOUT": "1"}


def warning_of_end(child: Child, version: int) -> str:
    """Return the one WARN with which a child's connect fails; nothing is left behind."""
    failed = child.read_line()
    assert failed["result"] == abi.remote_error(version)
    warns: list[str] = failed["warns"]
    assert child.end() == [{"threads": 1, "warns": []}]
    assert len(warns) == 1
    return warns[0]


@pytest.mark.parametrize("version", [5, 12])
def test_wrong_secret(version: int, start: Start) -> None:
    """Whoever knows the address but not the secret gets nothing; the listener goes on."""
    child = start("dial", version, SHORT)
    forged = bytearray.fromhex(child.read_line()["handle"])
    for at in range(16, 32):
        forged[at] ^= 0xFF
    child.send_line(handle=forged.hex())
    assert "127.0.0.1" in warning_of_end(child, version)


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_nobody_listens(version: int, start: Start) -> None:
    child = start("dial", version, SHORT)
    handle = bytearray.fromhex(child.read_line()["handle"])
    handle[6:8] = (1).to_bytes(2, "big")  # a port that nobody listens on
    child.send_line(handle=handle.hex())
    warn = warning_of_end(child, version)
    assert "127.0.0.1:1" in warn
    assert "refused" in warn


@pytest.mark.parametrize("version", [4, 12])
def test_peer_that_accepts_late_is_waited_for(version: int, start: Start) -> None:
    """The peer may itself wait for a rank that comes later; its kernel still acknowledges."""
    listener, sender = start("hesitant", version, SHORT), start("sender", version, SHORT)
    sender.send_line(handle=listener.read_line()["handle"])
    time.sleep(2.5)  # the thing under test is that nothing happens for more than two peer timeouts
    listener.send_line(accept=True)
    assert listener.read_line() == {"accepted": True}
    assert sender.read_line()["connected"]


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_accepting_one_serves_the_others(net: Net, start: Start) -> None:
    """Waiting in one accept must not keep the peers of another waiting: they may be what it waits for."""
    first, second = net.listen(), net.listen()
    child = start("sender_to_each", net.version)
    child.send_line(handles=[text_of(handle) for _, handle, _ in (second, first)])
    for _, _, listen in (first, second):
        comm = net.accepted(listen)
        net.close_receive(comm)
        net.close_listen(listen)
    assert (child.read_line(), child.read_line()) == ({"connected": True}, {"connected": True})


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_peer_that_dies_before_it_accepts(version: int, start: Start) -> None:
    listener, child = start("hesitant", version, SHORT), start("dial", version, SHORT)
    child.read_line()
    handle = listener.read_line()["handle"]
    listener.process.kill()  # before the connect: its engine would let us in without an accept
    listener.process.wait()
    child.send_line(handle=handle)
    assert "127.0.0.1" in warning_of_end(child, version)


# ---- connects that NCCL gives up ----


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_connect_that_is_given_up(version: int, start: Start) -> None:
    """After two peer timeouts threads, files and memory are back, though nobody calls anything."""
    (got,) = start("give_up", version, SHORT).end()
    assert got.pop("grown_bytes") < GROWN_BYTES
    assert got == {"untouched": 0 if version == 4 else 3, "warns": [], "threads": 0}


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_connect_that_is_given_up_beside_others(engine: str, start: Start) -> None:
    """The connect alone is ended: not the connection beside it, nor another connect that is polled."""
    got = start("give_up_beside", 12, {**SHORT, "HARP_ENGINE": engine}).end()
    assert got == [{"met": 2, "warns": []}]
