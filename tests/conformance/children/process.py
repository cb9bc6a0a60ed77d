# SPDX-License-Identifier: Apache-2.0
"""Scenarios of a process's life: the plugin loaded again and again, an abort, an exit, a signal."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from tests.conformance import abi
from tests.conformance.children.lines import init_net, send_line
from tests.conformance.driver import MEBIBYTE, Buffer, Log, Net, open_files, pattern_bytes, thread_count

RELOADS = 8


def mapping_count() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def reload(version: int) -> None:
    """Load, use and unload as NCCL 2.28 does around every last communicator."""
    for _ in range(RELOADS):
        net = init_net(Net(version, Log()))
        with net.pair() as pair:
            pair.transfer([b"hello", pattern_bytes(100_000, 1)])
        net.finalize()
        net.unload()
        send_line(threads=thread_count(), files=len(open_files()), mappings=mapping_count())


def _release_buffer(net: Net, comm: Any, handle: Any, buffer: Buffer) -> None:
    """Deregister a buffer of a connection, then unmap it."""
    assert net.deregister(comm, handle) == abi.SUCCESS
    buffer.unmap()


def teardown(version: int) -> None:
    """Abort as NCCL does: with requests in flight, deregMr, unmap the buffers, and only then close.

    Whoever still wrote to or read from a buffer would crash the process here.
    """
    net = init_net(Net(version))
    for round_ in range(6):
        with net.pair() as pair:
            place, source = Buffer(8 * MEBIBYTE), Buffer(8 * MEBIBYTE, pattern_bytes(8 * MEBIBYTE, round_))
            place.fill(0)
            result, receive_mr = net.register(pair.receiver, place)
            assert result == abi.SUCCESS
            result, send_mr = net.register(pair.sender, source)
            assert result == abi.SUCCESS
            sends = []
            for slot in range(8):
                at = slot * MEBIBYTE
                net.receive(pair.receiver, place.address + at, MEBIBYTE, receive_mr)
                sends.append(net.send(pair.sender, source.address + at, MEBIBYTE, send_mr))
            for _ in range(10 * round_):
                net.test(sends[-1])
                if sends[-1].done:
                    break
            ends = [(pair.receiver, receive_mr, place), (pair.sender, send_mr, source)]
            first_is_receiver = round_ % 2 == 0
            first, second = ends if first_is_receiver else reversed(ends)
            _release_buffer(net, *first)
            for request in sends[:1] if first_is_receiver else []:
                if not request.done:
                    with contextlib.suppress(AssertionError):
                        net.finish(request, wait_s=0.2)
            _release_buffer(net, *second)
    with net.pair() as pair:
        pair.transfer([b"and on"])
    net.finalize()
    send_line(threads=thread_count())


def leave(version: int) -> None:
    """Exit with all kinds of things open."""
    net = init_net(Net(version, None))
    net.listen()
    _, handle, listen = net.listen()
    sender, receiver = net.meet(handle, listen)
    buffer = Buffer(MEBIBYTE)
    for _ in range(4):
        net.receive(receiver, buffer.address, buffer.size)
        net.send(sender, buffer.address, buffer.size)
    buffer.address = None  # stays mapped, like NCCL's buffers at exit
    send_line(leaving=True)
    sys.exit(0)


def wait(version: int) -> None:
    """Keep a connection busy until a signal comes."""
    net = init_net(Net(version, None))
    with net.pair() as pair:
        pair.transfer([b"hello"])
        send_line(ready=True)
        while True:
            pair.transfer([b"hello"])
