# SPDX-License-Identifier: Apache-2.0
"""What takes a process of its own: configurations, exits, signals, forks, reloads, and peers that die."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.plan import LabSpec
from tests.conformance import abi
from tests.conformance.conftest import ENVIRONMENT
from tests.conformance.driver import Buffer, Net, Request, ffi, open_files, pattern, until
from tests.placed import pci_addresses, write_confs

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 90
PROMISED_S = 1.0  # how soon the death of a peer is an error
GONE_S = 10.0  # what a loaded machine gets before a test calls it a hang
TRIES = 3  # the soonest counts: the machine may be slow, the promise is not
NEW_AND_OLD = [4, 12]  # the tables between them differ in shape alone, which the other files cover
UNACCEPTED_MAX, GUESTS_MAX = 8, 64  # of a listener


class Child:
    """One scenario of children.py in a process; what it prints are JSON lines."""

    def __init__(
        self,
        name: str,
        version: int,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HARP_")}
        settings = ENVIRONMENT if environment is None else environment
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - kill() closes it
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.conformance.children", name, str(version)],
            cwd=ROOT,
            env={**clean, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._watch = threading.Timer(TIMEOUT_S, self.process.kill)
        self._watch.start()

    def line(self) -> dict[str, Any]:
        """Read one line; what the process said last, when it ended instead."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise AssertionError(f"ended with {self.process.wait(TIMEOUT_S)}: {self._said()}")
        decoded: dict[str, Any] = json.loads(text)
        return decoded

    def tell(self, **facts: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(facts) + "\n")
        self.process.stdin.flush()

    def end(self) -> list[dict[str, Any]]:
        """Wait until it ends well; return the lines that were not read."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        out = self.process.stdout.read()
        code = self.process.wait(TIMEOUT_S)
        assert code == 0, f"ended with {code}: {out}{self._said()}"
        return [json.loads(line) for line in out.splitlines()]

    def kill(self) -> None:
        self._watch.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


Start = Callable[..., Child]


def soon(test: Callable[..., float]) -> Callable[..., None]:
    """Make a test of one that returns after how many seconds the error came."""

    @functools.wraps(test)
    def tried(*arguments: Any, **named: Any) -> None:
        took: list[float] = []
        while len(took) < TRIES and (not took or took[-1] > PROMISED_S):
            took.append(test(*arguments, **named))
        assert took[-1] <= PROMISED_S, f"the error came after {took} s"

    return tried


def fail_after(net: Net, request: Request) -> float:
    """Wait until the request has failed with a remote error; return the seconds that took."""
    begin = time.monotonic()
    net.finish(request, wait_s=GONE_S)
    took = time.monotonic() - begin
    assert request.result == abi.remote_error(net.version)
    return took


@pytest.fixture
def start() -> Iterator[Start]:
    """Start scenarios that do not outlive the test."""
    with ExitStack() as stack:

        def one(*arguments: Any, **options: Any) -> Child:
            child = Child(*arguments, **options)
            stack.callback(child.kill)
            return child

        yield one


# ---- configuration ----


def test_not_configured(version: int, start: Start, tmp_path: Path) -> None:
    """Init fails with one WARN that names directory, glob and both remedies, and leaves nothing behind."""
    attempts = start("unconfigured", version, {"HARP_CONF_DIR": str(tmp_path)}).end()
    assert len(attempts) == 2
    for attempt in attempts:
        assert attempt["result"] not in (abi.SUCCESS, 7)
        (warn,) = attempt["warns"]
        for part in (str(tmp_path), "ztcp*.conf", "harpctl setup", "HARP_IFNAME", "libnccl-net.so"):
            assert part in warn
        assert attempt["context_is_null"]
        assert attempt["finalized"] == abi.SUCCESS
        assert (attempt["threads"], attempt["files"]) == (0, 0)


def test_disabled(version: int, start: Start) -> None:
    """Init steps aside in one INFO line, whatever else is set, and leaves nothing behind."""
    attempts = start("unconfigured", version, {**ENVIRONMENT, "HARP_DISABLE": "1", "HARP_PATHS": "0"}).end()
    assert len(attempts) == 2
    for attempt in attempts:
        assert attempt["result"] not in (abi.SUCCESS, 7)
        assert attempt["warns"] == []
        (line,) = attempt["lines"]
        assert "is disabled by HARP_DISABLE=1" in line
        assert attempt["context_is_null"]
        assert (attempt["threads"], attempt["files"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HARP_DISABLE", "yes"),
        ("HARP_ENGINE", "fast"),
        ("HARP_PATHS", "0"),
        ("HARP_PEER_TIMEOUT", "soon"),
        ("HARP_DRIVER", "rdma"),
        ("HARP_IFNAME", "=nosuchinterface"),
    ],
)
def test_bad_variable(name: str, value: str, start: Start) -> None:
    for attempt in start("unconfigured", 12, {**ENVIRONMENT, name: value}).end():
        assert attempt["result"] not in (abi.SUCCESS, 7)
        (warn,) = attempt["warns"]
        assert name in warn
        assert value.lstrip("=") in warn
        assert (attempt["threads"], attempt["files"]) == (0, 0)


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_conf_file(version: int, start: Start, tmp_path: Path) -> None:
    """A conf file's speed is believed."""
    (tmp_path / "ztcp0.conf").write_text("[eni]\ninterface = lo\nspeed_mbps = 54321\n")
    (told,) = start("properties", version, {"HARP_CONF_DIR": str(tmp_path)}).end()
    assert (told["name"], told["speed"]) == ("lo", 54321)


def test_a_speed_that_is_assumed_is_called_so(start: Start) -> None:
    """Loopback has none."""
    (told,) = start("properties", 12).end()
    (line,) = [line for line in told["log"] if str(told["speed"]) in line]
    assert "assumed" in line


@pytest.mark.lab
def test_speed_of_the_interface(start: Start, make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec())
    name = lab.enis[0]
    shown = subprocess.run(
        lab.command(0, ["cat", f"/sys/class/net/{name}/speed"]), capture_output=True, text=True, check=True
    )
    child = start("properties", 12, {"HARP_IFNAME": f"={name}"}, prefix=lab.command(0, []))
    (told,) = child.end()
    assert (told["name"], told["speed"], told["pci_path"]) == (name, int(shown.stdout), None)


@pytest.mark.lab
@pytest.mark.parametrize("devices", ["striped", "enis"])
def test_devices(devices: str, start: Start, make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec(enis=3))
    environment = {"HARP_IFNAME": "eni", "HARP_DEVICES": devices}
    (said,) = start("properties", 12, environment, lab.command(0, [])).end()
    names = {"striped": ["eni0+eni1+eni2"], "enis": ["eni0", "eni1", "eni2"]}
    assert said["devices"] == names[devices]


@pytest.mark.lab
@pytest.mark.parametrize("version", [9, 11, 12])
def test_merging_devices(
    version: int, start: Start, make_lab: Callable[[LabSpec], Lab], tmp_path: Path
) -> None:
    """The merged device names its parts, moves data over them, and is given again for the same parts."""
    lab = make_lab(LabSpec(enis=2))
    folder = write_confs(tmp_path / "conf", pci_addresses(2))
    environment = {"HARP_CONF_DIR": str(folder), "HARP_DEVICES": "enis"}
    merged, said = start("merge", version, environment, lab.command(0, [])).end()
    speed = 2 * 10000
    assert merged == {"both": 2, "again": [0, 2], "name": "eni0+eni1", "parts": [0, 1], "speed": speed}
    assert said["warns"] == []
    assert 0 not in said["results"]
    assert "0 others" in said["refused"][0]
    assert "no device 99" in said["refused"][1]
    assert "no device -1" in said["refused"][2]


@pytest.mark.lab
@pytest.mark.parametrize("version", [11, 12])
def test_merged_devices_outlive_the_last_context(
    version: int, start: Start, make_lab: Callable[[LabSpec], Lab], tmp_path: Path
) -> None:
    """NCCL that has kept the plugin goes on with their numbers; one that has not, counts and merges anew."""
    lab = make_lab(LabSpec(enis=2))
    folder = write_confs(tmp_path / "conf", pci_addresses(2))
    environment = {"HARP_CONF_DIR": str(folder), "HARP_DEVICES": "enis"}
    (said,) = start("merge_again", version, environment, lab.command(0, [])).end()
    assert said == {"counts": [2, 3, 3], "again": [0, 2], "other": [0, 2], "name": "eni1+eni0"}


@pytest.mark.lab
@pytest.mark.parametrize("version", [9, 12])
def test_devices_without_a_place_are_not_merged(
    version: int, start: Start, make_lab: Callable[[LabSpec], Lab]
) -> None:
    """NCCL would lose them. It asks without being told to, so that this is no warning."""
    lab = make_lab(LabSpec(enis=2))
    environment = {"HARP_IFNAME": "eni", "HARP_DEVICES": "enis"}
    (said,) = start("merge_unplaced", version, environment, lab.command(0, [])).end()
    assert said["several"] != 0
    assert said["single"] == 0
    assert said["warns"] == []
    assert len(said["lines"]) == 1
    assert "eni0 is not merged with others, because it has no place on the PCI bus" in said["lines"][0]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("paths", [1, 4])
@pytest.mark.parametrize("version", [4, 12])
def test_matrix(version: int, engine: str, paths: int, start: Start) -> None:
    """Nothing to 64 MiB, in both ways to run an engine, over one path and over several."""
    environment = {"HARP_IFNAME": "=lo", "HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    assert start("matrix", version, environment).end() == [{"warns": [], "threads": 1}]


# ---- life in a process ----


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_reload_leaks_nothing(version: int, engine: str, start: Start) -> None:
    rounds = start("reload", version, {**ENVIRONMENT, "HARP_ENGINE": engine}).end()
    settled, last = rounds[2], rounds[-1]  # by then the allocator's and the threads' own caches are there
    assert {round_["threads"] for round_ in rounds} == {1}
    assert {round_["files"] for round_ in rounds} == {rounds[0]["files"]}
    assert last["mappings"] - settled["mappings"] < len(rounds) - 3


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_teardown_in_nccls_order(version: int, start: Start) -> None:
    assert start("teardown", version).end() == [{"threads": 1}]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_fork(version: int, engine: str, start: Start) -> None:
    assert start("fork", version, {**ENVIRONMENT, "HARP_ENGINE": engine}).end() == [
        {"child": 0, "threads": 1}
    ]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_exit_without_finalize(version: int, engine: str, start: Start) -> None:
    assert start("leave", version, {**ENVIRONMENT, "HARP_ENGINE": engine}).end() == [{"leaving": True}]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_keep_their_action(number: signal.Signals, engine: str, start: Start) -> None:
    child = start("wait", 12, {**ENVIRONMENT, "HARP_ENGINE": engine})
    child.line()
    child.process.send_signal(number)
    assert child.process.wait(TIMEOUT_S) == -number


def _signal_actions() -> list[str]:
    status = Path("/proc/self/status").read_text().splitlines()
    return [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


def test_no_signal_is_handled(net: Net) -> None:
    before = _signal_actions()
    with net.pair() as pair:
        pair.transfer([b"hello"])
        assert _signal_actions() == before
    assert _signal_actions() == before


def test_files_are_closed_on_exec(net: Net) -> None:
    before = open_files()
    with net.pair() as pair:
        _, _, listen = net.listen()
        pair.transfer([b"hello"])
        ours = {fd: to for fd, to in open_files().items() if fd not in before}
        assert len(ours) >= 4
        kept = [to for fd, to in ours.items() if not fcntl.fcntl(int(fd), fcntl.F_GETFD) & fcntl.FD_CLOEXEC]
        assert kept == []
        net.close_listen(listen)


# ---- two processes ----


class Peer:
    """The other end of a connection, in a process that listens."""

    def __init__(self, child: Child, net: Net) -> None:
        self.child, self.net = child, net
        first = child.line()
        self.pid: int = first["pid"]
        handle = ffi.new("char[]", bytes.fromhex(first["handle"]))
        found: list[Any] = []

        def poll() -> bool:
            result, comm = net.connect(handle)
            assert result == abi.SUCCESS
            found.append(comm)
            return bool(comm != ffi.NULL)

        until("connected", poll)
        self.comm = found[-1]
        assert child.line() == {"accepted": True}

    def send(self, buffer: Buffer) -> Request:
        return self.net.started(lambda: self.net.send(self.comm, buffer.address, buffer.size))


@pytest.mark.parametrize("version", NEW_AND_OLD)
@pytest.mark.parametrize("other", [4, 8, 12])
def test_two_processes_of_any_two_versions(net: Net, other: int, start: Start) -> None:
    """NCCL's versions need not be the same on both sides."""
    peer = Peer(start("receiver", other), net)
    data = [pattern(size, size) for size in (0, 9, 20_000, 2_000_000)]
    peer.child.tell(n=4, size=2_000_000)
    assert peer.child.line() == {"posted": True}
    sources = [Buffer(len(d), d) for d in data]
    net.finish(*[peer.send(source) for source in sources])
    got = peer.child.line()
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
SLOW_US = 100_000  # to open a stream, on a loaded machine: what it takes is printed (pytest -rP)


@pytest.mark.parametrize("version", NEW_AND_OLD)
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_connects_that_cross_make_one_connection(version: int, engine: str, start: Start) -> None:
    """Each process connects to the other at once; both closes all, and again."""
    environment = {**ENVIRONMENT, "HARP_ENGINE": engine, "HARP_DRIVER": "udp"}  # no other TCP connections
    both = [start("cross", version, environment) for _ in range(2)]
    for _ in range(CROSSINGS):
        for child in both:
            child.tell(n=CROSSING_THREADS)
        handles = [child.line()["handles"] for child in both]
        for child, theirs in zip(both, reversed(handles), strict=True):
            child.tell(handles=theirs)
        for child in both:
            met = child.line()
            assert met["warns"] == []
            assert len(met["control"]) == 1
        for child in both:
            child.tell()
        for child in both:
            assert child.line() == {"closed": True}


def test_many_comms_of_few_peers(start: Start) -> None:
    """One control connection for each peer, and bounded memory for each comm."""
    environment = {**ENVIRONMENT, "HARP_DRIVER": "udp"}  # no other TCP connections than those of control
    hub, *spokes = children = [start("scale", 12, environment) for _ in range(1 + PEERS)]
    each = COMMS // PEERS // 2
    for child in children:
        child.tell()
    handles = [child.line()["handle"] for child in children]
    hub.tell(handles=handles[1:], connects=each, accepts=PEERS * each)
    for spoke in spokes:
        spoke.tell(handles=handles[:1], connects=each, accepts=each)
    for step in "met", "sent":
        for child in children:
            assert child.line() == {step: True}
        for child in children:
            child.tell()
    got = [child.line() for child in children]
    print(f"{COMMS} comms with {PEERS} processes: {got[0]['bytes'] >> 20} MiB resident,", end=" ")
    print(f"{got[0]['bytes'] // COMMS >> 10} KiB a comm")
    assert [one["warns"] for one in got] == [[]] * len(children)
    assert [one["control"] for one in got] == [PEERS] + [1] * PEERS
    assert got[0]["bytes"] < min(COMMS * COMM_BYTES, COMMS_BYTES)
    for child in children:
        child.tell()
        child.end()


def test_a_further_stream_opens_soon(start: Start) -> None:
    """One round trip on the control connection: no timer of either side is waited for."""
    one, other = (start("scale", 12) for _ in range(2))
    for child in (one, other):
        child.tell()
    handles = [child.line()["handle"] for child in (one, other)]
    one.tell(handles=handles[1:], connects=COMMS // PEERS, accepts=0)
    other.tell(handles=[], connects=0, accepts=COMMS // PEERS)
    for step in "met", "sent":
        for child in (one, other):
            assert child.line() == {step: True}
        for child in (one, other):
            child.tell()
    times = sorted(one.line()["connect_us"])
    print(f"connect takes {times[len(times) // 10]}, {times[len(times) // 2]} and", end=" ")
    print(f"{times[len(times) * 9 // 10]} us (10th, 50th and 90th of 100)")
    assert other.line()["warns"] == []
    assert times[len(times) // 2] < SLOW_US
    for child in (one, other):
        child.tell()
        child.end()


@pytest.mark.parametrize("version", NEW_AND_OLD)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@soon
def test_receiving_peer_dies(net: Net, number: signal.Signals, start: Start) -> float:
    """A remote error, soon, with one WARN that names the process."""
    peer = Peer(start("receiver", net.version), net)
    request = peer.send(Buffer(1 << 20, pattern(1 << 20, 1)))
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
@soon
def test_sending_peer_dies(net: Net, start: Start) -> float:
    _, handle, listen = net.listen()
    child = start("sender", net.version)
    child.tell(handle=bytes(ffi.buffer(handle)).hex())
    found: list[Any] = []

    def poll() -> bool:
        result, comm = net.accept(listen)
        assert result == abi.SUCCESS
        found.append(comm)
        return bool(comm != ffi.NULL)

    until("accepted", poll)
    pid = child.line()["pid"]
    place = Buffer(1 << 20)
    request = net.receive(found[-1], place.address, place.size)
    for _ in range(20):
        assert not net.test(request)
    child.process.kill()
    took = fail_after(net, request)
    (warn,) = net.warns()
    assert f"process {pid}" in warn
    net.close_receive(found[-1])
    net.close_listen(listen)
    return took


@pytest.mark.parametrize("version", [12])
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_one_handle_is_no_lever(version: int, engine: str, start: Start) -> None:
    """Who knows a handle and connects without end gets a few connections; the rest of the process goes on."""
    environment = {**ENVIRONMENT, "HARP_ENGINE": engine}
    victim = start("overrun", version, environment)
    others = start("crowd", version, {**environment, "HARP_PEER_TIMEOUT": "1"})
    others.tell(handle=victim.line()["handle"])
    assert others.line() == {"connected": UNACCEPTED_MAX}
    victim.tell()
    cost = victim.line()
    assert cost["files"] <= UNACCEPTED_MAX + GUESTS_MAX
    assert cost["memory"] < UNACCEPTED_MAX << 20
    told = others.line()
    assert told["failed"] == len(told["warns"]) == 100 - UNACCEPTED_MAX
    assert "too many connections wait there for accept" in told["warns"][0]
    victim.tell()
    assert victim.line() == {"threads": 1}


def _until_comm(call: Callable[[], tuple[int, Any]]) -> Any:
    found: list[Any] = []

    def poll() -> bool:
        result, comm = call()
        assert result == abi.SUCCESS
        found.append(comm)
        return bool(comm != ffi.NULL)

    until("a comm", poll)
    return found[-1]


@contextlib.contextmanager
def _stopped(child: Child) -> Iterator[None]:
    child.process.send_signal(signal.SIGSTOP)
    until("stopped", lambda: _state(child.process.pid) == "T")
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
@soon
def test_receiving_peer_that_forked_in_the_handshake_dies(net: Net, start: Start) -> float:
    """A data loader's worker, forked while we connect, does not keep our connection with its parent."""
    child = start("listen_and_fork", net.version)
    handle = ffi.new("char[]", bytes.fromhex(child.line()["handle"]))
    with _stopped(child):
        assert net.connect(handle) == (abi.SUCCESS, ffi.NULL)
    worker = child.line()["worker"]
    comm = _until_comm(lambda: net.connect(handle))
    assert child.line() == {"accepted": True}
    source = Buffer(1 << 20)
    request = net.started(lambda: net.send(comm, source.address, source.size))
    with _killed_before(worker, child):
        took = fail_after(net, request)
    (warn,) = net.warns()
    assert f"process {child.process.pid}" in warn
    assert net.close_send(comm) == abi.SUCCESS
    return took


@pytest.mark.parametrize("version", [12])
@soon
def test_sending_peer_that_forked_in_the_handshake_dies(version: int, start: Start) -> float:
    receiver, sender = start("receiver", version), start("connect_and_fork", version)
    handle = receiver.line()["handle"]
    with _stopped(receiver):
        sender.tell(handle=handle)
        worker = sender.line()["worker"]
    assert sender.line() == {"connected": True}
    assert receiver.line() == {"accepted": True}
    receiver.tell(n=1, size=1 << 20)
    assert receiver.line() == {"posted": True}
    with _killed_before(worker, sender):
        begin = time.monotonic()
        said = receiver.line()
        took = time.monotonic() - begin
    assert said["results"] == [abi.remote_error(version)]
    (warn,) = said["warns"]
    assert f"process {sender.process.pid}" in warn
    return took


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_stopped_peer_is_waited_for(engine: str, start: Start) -> None:
    """A process that is stopped for longer than the peer timeout is alive: its kernel says so."""
    environment = {**ENVIRONMENT, "HARP_PEER_TIMEOUT": "1", "HARP_ENGINE": engine}
    receiver, sender = start("receiver", 12, environment), start("sender", 12, environment)
    sender.tell(handle=receiver.line()["handle"])
    sender.line()
    receiver.line()
    receiver.process.send_signal(signal.SIGSTOP)
    until("stopped", lambda: _state(receiver.process.pid) == "T")
    sender.tell(size=3_000_000)
    time.sleep(2.5)  # the thing under test is that nothing happens for more than two peer timeouts
    receiver.process.send_signal(signal.SIGCONT)
    receiver.tell(n=1, size=3_000_000)
    assert receiver.line() == {"posted": True}
    assert receiver.line()["results"] == [abi.SUCCESS]
    assert sender.line() == {"result": abi.SUCCESS}


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


# ---- connects that must fail ----

SHORT = {**ENVIRONMENT, "HARP_PEER_TIMEOUT": "1"}


@pytest.mark.parametrize("version", [5, 12])
def test_wrong_secret(version: int, start: Start) -> None:
    """Whoever knows the address but not the secret gets nothing; the listener goes on."""
    child = start("dial", version, SHORT)
    forged = bytearray.fromhex(child.line()["handle"])
    for at in range(30, 46):
        forged[at] ^= 0xFF
    child.tell(handle=forged.hex())
    failed = child.line()
    assert failed["result"] == abi.remote_error(version)
    (warn,) = failed["warns"]
    assert "127.0.0.1" in warn
    assert child.end() == [{"threads": 1, "warns": []}]


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_nobody_listens(version: int, start: Start) -> None:
    child = start("dial", version, SHORT)
    handle = bytearray.fromhex(child.line()["handle"])
    handle[8:10] = (1).to_bytes(2, "big")  # a port that nobody listens on
    child.tell(handle=handle.hex())
    failed = child.line()
    assert failed["result"] == abi.remote_error(version)
    (warn,) = failed["warns"]
    assert "127.0.0.1:1" in warn
    assert "refused" in warn
    assert child.end() == [{"threads": 1, "warns": []}]


@pytest.mark.parametrize("version", [4, 12])
def test_peer_that_accepts_late_is_waited_for(version: int, start: Start) -> None:
    """It may itself be waiting for a rank that comes later; its kernel says that it lives."""
    listener, sender = start("hesitant", version, SHORT), start("sender", version, SHORT)
    sender.tell(handle=listener.line()["handle"])
    time.sleep(2.5)  # the thing under test is that nothing happens for more than two peer timeouts
    listener.tell(accept=True)
    assert listener.line() == {"accepted": True}
    assert sender.line()["connected"]


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_accepting_one_serves_the_others(net: Net, start: Start) -> None:
    """Waiting in one accept must not keep the peers of another waiting: they may be what it waits for."""
    first, second = net.listen(), net.listen()
    child = start("sender_to_each", net.version)
    child.tell(handles=[bytes(ffi.buffer(handle)).hex() for _, handle, _ in (second, first)])
    for _, _, listen in (first, second):
        found: list[Any] = []

        def poll(listen: Any = listen, found: list[Any] = found) -> bool:
            result, comm = net.accept(listen)
            assert result == abi.SUCCESS
            found.append(comm)
            return bool(comm != ffi.NULL)

        until("accepted", poll)
        net.close_receive(found[-1])
        net.close_listen(listen)
    assert (child.line(), child.line()) == ({"connected": True}, {"connected": True})


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_peer_that_dies_before_it_accepts(version: int, start: Start) -> None:
    listener, child = start("hesitant", version, SHORT), start("dial", version, SHORT)
    child.line()
    handle = listener.line()["handle"]
    listener.process.kill()  # before the connect: its engine would let us in without an accept
    listener.process.wait()
    child.tell(handle=handle)
    failed = child.line()
    assert failed["result"] == abi.remote_error(version)
    (warn,) = failed["warns"]
    assert "127.0.0.1" in warn
    assert child.end() == [{"threads": 1, "warns": []}]


# ---- connects that NCCL gives up ----


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_connect_that_is_given_up(version: int, start: Start) -> None:
    """After two peer timeouts threads, files and memory are back, though nobody calls anything."""
    (said,) = start("give_up", version, SHORT).end()
    assert said.pop("grown_kib") < 4096
    assert said == {"untouched": 0 if version == 4 else 3, "warns": [], "threads": 0}


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_connect_that_is_given_up_beside_others(engine: str, start: Start) -> None:
    """It alone is ended: not the connection beside it, nor a connect that is polled."""
    said = start("give_up_beside", 12, {**SHORT, "HARP_ENGINE": engine}).end()
    assert said == [{"met": 2, "warns": []}]
