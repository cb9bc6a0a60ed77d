# SPDX-License-Identifier: Apache-2.0
"""NCCL's profiler hears of each transfer when it begins and ends, however it ends; and of nothing else."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cffi
import pytest

from tests.conformance import abi
from tests.conformance.driver import Buffer, Net, ffi, pattern_bytes
from tests.conftest import ROOT

START, STOP = 0, 1
SOCKET_ID = (2 << 16) | 1  # as NCCL's own Socket calls its events, in their first version
TRANSFER = 1
SEND, RECEIVE = 0, 1
VERSIONS = [version for version in abi.VERSIONS if version >= 10]
PHANDLE = 0x4711

layout = cffi.FFI()
layout.cdef(
    "struct event { uint8_t type; struct { int fd; int op; size_t length; } sock; };"
    " typedef int (*profiler)(void **event, int type, void *phandle, int64_t id, void *data);"
)


@dataclasses.dataclass
class Recorder:
    """A profiler of NCCL's; one for the process, as NCCL has one."""

    wanted: bool = True
    started: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # op and bytes
    open: set[int] = dataclasses.field(default_factory=set)
    ids: int = 0

    def on_call(self, event: Any, type_: int, phandle: Any, id_: int, data: Any) -> int:
        if type_ == START:
            assert event[0] == layout.NULL
            assert (int(layout.cast("uintptr_t", phandle)), id_) == (PHANDLE, SOCKET_ID)
            transfer = layout.cast("struct event *", data)
            assert (transfer.type, transfer.sock.fd) == (TRANSFER, -1)
            self.started.append((transfer.sock.op, transfer.sock.length))
            if self.wanted:
                self.ids += 1
                self.open.add(self.ids)
                event[0] = layout.cast("void *", self.ids)
        else:
            assert (type_, phandle, id_, data) == (STOP, layout.NULL, 0, layout.NULL)
            self.open.remove(int(layout.cast("uintptr_t", event[0])))
        return 0


RECORDER = Recorder()
FAILED: list[BaseException] = []
CALLBACK = layout.callback("profiler", RECORDER.on_call, onerror=lambda _kind, error, _trace: FAILED.append(error))


@pytest.fixture(params=VERSIONS, ids=lambda version: f"v{version}")
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    RECORDER.__init__()  # type: ignore[misc]
    FAILED.clear()
    address = int(layout.cast("uintptr_t", CALLBACK))
    made = Net(request.param, profiler=ffi.cast("void *", address), phandle=ffi.cast("void *", PHANDLE))
    assert made.init() == abi.SUCCESS
    yield made
    assert made.finalize() == abi.SUCCESS
    assert RECORDER.open == set()
    assert FAILED == []


def test_each_transfer_is_an_event(net: Net) -> None:
    sizes = [0, 8, 5000, 70_000]
    with net.pair() as pair:
        for size in sizes:
            pair.transfer([pattern_bytes(size, size)], spare=100)
            assert RECORDER.open == set()
    assert sorted(RECORDER.started) == sorted(
        [*((SEND, size) for size in sizes), *((RECEIVE, size + 100) for size in sizes)]
    )


def test_open_ones_are_stopped_by_the_close(net: Net) -> None:
    place, small, large = Buffer(64), Buffer(64, bytes(64)), Buffer(1 << 20, bytes(1 << 20))
    with net.pair() as pair:
        for _ in range(5):
            net.receive(pair.receiver, place.address, 64)
        assert len(RECORDER.open) == 5
    assert RECORDER.open == set()
    with net.pair() as pair:
        for source in (small, large):
            net.send(pair.sender, source.address, source.size)
        assert len(RECORDER.open) == 2
    net.warns()


def test_a_failed_transfer_is_stopped(net: Net) -> None:
    """The first by its test, the other by the close."""
    source, place = Buffer(70_000, bytes(70_000)), Buffer(64)
    with net.pair() as pair:
        receives = [net.receive(pair.receiver, place.address, 64) for _ in range(2)]
        send = net.send(pair.sender, source.address, source.size)
        net.finish(receives[0], send)
        assert receives[0].result == send.result == abi.USAGE
        assert len(RECORDER.open) == 1
    net.warns()


def test_a_buffer_that_is_taken_away(net: Net) -> None:
    place = Buffer(64)
    with net.pair() as pair:
        _, mhandle = net.register(pair.receiver, place)
        net.receive(pair.receiver, place.address, 64, mhandle)
        assert net.deregister(pair.receiver, mhandle) == abi.SUCCESS
    net.warns()


def test_an_event_that_nobody_wants_is_not_stopped(net: Net) -> None:
    RECORDER.wanted = False
    with net.pair() as pair:
        pair.transfer([pattern_bytes(100, 1)])
    assert len(RECORDER.started) == 2


def test_without_a_handle_there_is_no_event(net: Net) -> None:
    net.phandle = ffi.NULL
    with net.pair() as pair:
        pair.transfer([pattern_bytes(100, 1)])
    assert RECORDER.started == []


@pytest.mark.usefixtures("_environment")
def test_a_second_profiler_ends_it() -> None:
    """Nothing identifies the profiler of a request. In a process of its own, since it stays so."""
    subprocess.run([sys.executable, "-m", "tests.conformance.test_profiler"], check=True, cwd=ROOT, timeout=60)


def _profile_second() -> None:
    address = int(layout.cast("uintptr_t", CALLBACK))
    other = layout.callback("profiler", lambda *_: 0)
    net = Net(12, profiler=ffi.cast("void *", address), phandle=ffi.cast("void *", PHANDLE))
    assert net.init() == abi.SUCCESS
    with net.pair() as pair:
        net.receive(pair.receiver, Buffer(64).address, 64)
        assert len(RECORDER.open) == 1
        second = Net(12, profiler=ffi.cast("void *", int(layout.cast("uintptr_t", other))))
        assert second.init() == abi.SUCCESS
        assert second.log is not None
        assert [line for line in second.log.lines if "two NCCLs" in line.text]
        net.receive(pair.receiver, Buffer(64).address, 64)
        assert len(RECORDER.started) == 1
    assert RECORDER.open == set()


if __name__ == "__main__":
    _profile_second()
