# SPDX-License-Identifier: Apache-2.0
"""Scenarios of many connections: more than are accepted, crossing ones, and their cost."""

from __future__ import annotations

import functools
import os
import time
from typing import Any

from tests.conformance import abi
from tests.conformance.children.lines import init_net, read_line, send_line
from tests.conformance.driver import (
    MEBIBYTE,
    Buffer,
    Net,
    Pair,
    control_connections,
    ffi,
    handle_of,
    in_threads,
    open_files,
    pattern_bytes,
    poll_until,
    resident_bytes,
    text_of,
    thread_count,
)

CROWD = 100
MESSAGE_BYTES = 1000


def overrun(version: int) -> None:
    """Listen, accept nobody while others connect, report what that costs, connect to ourselves."""
    net = init_net(Net(version, None))
    _, handle, listen = net.listen()
    files, memory = len(open_files()), resident_bytes()
    send_line(handle=text_of(handle))
    read_line()
    files, memory = len(open_files()) - files, resident_bytes() - memory
    with net.pair() as pair:
        pair.transfer([pattern_bytes(MEBIBYTE, 1)])
    send_line(files=files, memory=memory)
    read_line()
    net.close_listen(listen)
    net.finalize()
    send_line(threads=thread_count())


def crowd(version: int) -> None:
    """Connect many times with the one handle that comes in, until each has a comm or has failed."""
    net = init_net(Net(version))
    assert net.log is not None
    handle = bytes.fromhex(read_line()["handle"])
    waiting = [ffi.new("char[]", handle) for _ in range(CROWD)]
    results: list[int] = []

    def poll() -> None:
        for copy in list(waiting):
            result, comm = net.connect(copy)
            if comm != ffi.NULL or result != abi.SUCCESS:
                waiting.remove(copy)
                results.append(result)

    def all_were_answered() -> bool:
        poll()
        refused = sum("too many connections wait" in line.text for line in net.log.lines)  # type: ignore[union-attr]
        return len(results) + refused >= CROWD

    poll_until("all answered", all_were_answered)
    send_line(connected=results.count(abi.SUCCESS))

    def all_are_over() -> bool:
        poll()
        return not waiting

    poll_until("all over", all_are_over)
    send_line(failed=results.count(abi.remote_error(version)), warns=net.warns())
    read_line()


def cross(version: int) -> None:
    """Connect to another process while it connects here, from several threads; again and again.

    Of each line that comes in: {} listens, and prints the handles; handles connects to them, accepts, moves a
    message on each, prints the control connections, and waits for the next line, which closes all.
    """
    net = init_net(Net(version))
    while (line := read_line()) is not None:
        listens = [net.listen() for _ in range(line["n"])]
        send_line(handles=[text_of(handle) for _, handle, _ in listens])
        theirs = [handle_of(text) for text in read_line()["handles"]]
        pairs: list[Pair] = []

        def meet(handle: Any, listen: Any, pairs: list[Pair] = pairs) -> None:
            pairs.append(Pair(net, *net.meet(handle, listen)))

        in_threads(
            *(
                functools.partial(meet, handle, listen)
                for handle, (_, _, listen) in zip(theirs, listens, strict=True)
            )
        )
        places = [Buffer(1000) for _ in pairs]
        requests = [pair.post_receive(place) for pair, place in zip(pairs, places, strict=True)]
        requests += [pair.post_send(Buffer(1000, pattern_bytes(1000, 1))) for pair in pairs]
        net.finish(*requests)
        assert all(place.read(1000) == pattern_bytes(1000, 1) for place in places)
        send_line(control=sorted(control_connections()), warns=net.warns())
        read_line()
        for pair in pairs:
            pair.close()
        for _, _, listen in listens:
            assert net.close_listen(listen) == abi.SUCCESS
        send_line(closed=True)
    net.finalize()


def scale(version: int) -> None:
    """Connect many times to each of some processes, and be connected to; report memory and time.

    The first line in: {}, answered with a handle. The second: whom to connect to, how often, and how many to
    accept. The third: {}, then every comm moves a message that comes before its receive.
    """
    net = init_net(Net(version))
    with net.pair() as first:  # what a process needs for its first connection is not counted
        first.transfer([b"ready"])
    result, own, listen = net.listen()
    assert result == abi.SUCCESS
    before = resident_bytes()
    read_line()
    send_line(handle=text_of(own))
    counts = read_line()
    handles = [bytes.fromhex(text) for text in counts["handles"] for _ in range(counts["connects"])]
    senders: list[Any] = []
    receivers: list[Any] = []
    took_s: list[float] = []
    handle, begun = None, 0.0
    while len(senders) < len(handles) or len(receivers) < counts["accepts"]:
        if len(senders) < len(handles):
            if handle is None:
                handle, begun = ffi.new("char[]", handles[len(senders)]), time.perf_counter()
            status, comm = net.connect(handle)
            assert status == abi.SUCCESS
            if comm != ffi.NULL:
                took_s.append(time.perf_counter() - begun)
                senders.append(comm)
                handle = None
        if len(receivers) < counts["accepts"]:
            status, comm = net.accept(listen)
            assert status == abi.SUCCESS
            if comm != ffi.NULL:
                receivers.append(comm)
        os.sched_yield()  # there are more of these processes than cores
    send_line(met=True)
    read_line()
    source = Buffer(MESSAGE_BYTES, pattern_bytes(MESSAGE_BYTES, 1))
    requests = [net.started(functools.partial(net.send, comm, source.address, source.size)) for comm in senders]
    net.finish(*requests)
    send_line(sent=True)
    read_line()
    place = Buffer(MESSAGE_BYTES)
    for comm in receivers:
        place.fill(0)
        net.finish(net.receive(comm, place.address, place.size))
        assert place.read() == pattern_bytes(MESSAGE_BYTES, 1)
    send_line(
        control=len(control_connections()),
        bytes=resident_bytes() - before,
        connect_us=[round(1e6 * s, 1) for s in took_s],
        warns=net.warns(),
    )
    read_line()
    for comm in senders:
        assert net.close_send(comm) == abi.SUCCESS
    for comm in receivers:
        assert net.close_receive(comm) == abi.SUCCESS
    assert net.close_listen(listen) == abi.SUCCESS
    net.finalize()
