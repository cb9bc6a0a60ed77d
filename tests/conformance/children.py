# SPDX-License-Identifier: Apache-2.0
"""Scenarios that need a process of their own: `python -m tests.conformance.children NAME VERSION`.

Each prints JSON lines and exits with 0 when all went as it must. What comes in on standard input is one JSON
value a line. SIGPIPE has its default action here, so that a write to a dead peer that could raise it shows.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance import abi
from tests.conformance.driver import (
    Buffer,
    Log,
    Net,
    Pair,
    control_connections,
    ffi,
    handle_of,
    in_threads,
    open_files,
    pattern,
    resident_bytes,
    text_of,
    thread_count,
    until,
    until_files_back,
)

MEBIBYTE = 1 << 20
MATRIX_SIZES = (0, 1, 127, 128, 129, 4096, 16_385, 65_536, 1_000_003, 4 * MEBIBYTE, 64 * MEBIBYTE)
RELOADS = 8
WORKER_S = 90
CROWD = 100
MESSAGE_BYTES = 1000


def send_line(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def read_line() -> Any:
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def ready(net: Net, traffic_class: int | None = None) -> Net:
    assert net.init(traffic_class) == abi.SUCCESS, net.warns()
    return net


def mapping_count() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def unconfigured(version: int) -> None:
    """Init fails; twice, since NCCL may ask again for the next communicator."""
    net, threads, files = Net(version), thread_count(), open_files()
    for _ in range(2):
        result = net.init()
        context_is_null = net.ctx == ffi.NULL
        lines = [line.text for line in net.log.lines] if net.log else []
        warns = net.warns()
        finalized = net.finalize()
        send_line(
            result=result,
            warns=warns,
            lines=lines,
            context_is_null=context_is_null,
            finalized=finalized,
            threads=thread_count() - threads,
            files=len(open_files()) - len(files),
        )


def properties(version: int) -> None:
    """Report what the device is, and the lines of the log."""
    net = ready(Net(version))
    assert net.log is not None
    _, props = net.properties(0)
    send_line(
        name=ffi.string(props.name).decode(),
        speed=props.speed,
        pci_path=None if props.pciPath == ffi.NULL else ffi.string(props.pciPath).decode(),
        guid=props.guid,
        devices=[ffi.string(net.properties(dev)[1].name).decode() for dev in range(net.devices()[1])],
        log=[line.text for line in net.log.lines],
    )
    net.finalize()


def matrix(version: int) -> None:
    """Messages from nothing to 64 MiB."""
    net = ready(Net(version))
    with net.pair() as pair:
        for number, size in enumerate(MATRIX_SIZES):
            pair.transfer([pattern(size, number)])
        pair.transfer([pattern(200_000 + number, number) for number in range(8)], spare=1000)
    net.finalize()
    send_line(warns=net.warns(), threads=thread_count())


def _merge(net: Net, *parts: int) -> tuple[int, int]:
    dev, props = ffi.new("int *", -1), ffi.new("struct { int ndevs; int devs[8]; } *")
    props.ndevs = len(parts)
    for i, part in enumerate(parts):
        props.devs[i] = part
    return net.table.makeVDevice(dev, ffi.cast("void *", props)), dev[0]


def merge(version: int) -> None:
    """Merge devices as NCCL does, use the merged one, ask for ones that cannot be."""
    net = ready(Net(version))
    _, both = _merge(net, 0, 1)
    _, props = net.properties(both)
    parts = list(props.vProps.devs[0 : props.vProps.ndevs])
    with net.pair(both) as pair:
        pair.transfer([pattern(size, 1) for size in (1, 5000, 1 << 20)])
    again = _merge(net, 0, 1)
    warns = net.warns()
    results = [_merge(net, *wrong)[0] for wrong in [(), (0, 99), (-1,)]]
    refused = net.warns()
    send_line(
        both=both, again=list(again), name=ffi.string(props.name).decode(), parts=parts, speed=props.speed
    )
    send_line(results=results, warns=warns, refused=refused)


def merge_again(version: int) -> None:
    """Merge; begin anew, as NCCL does that has unloaded the plugin in between, and as one that has not."""
    net = ready(Net(version))
    _merge(net, 0, 1)
    net.finalize()
    net = ready(Net(version))
    counts = [net.devices()[1]]
    with net.pair(2) as pair:
        pair.transfer([pattern(5000, 1)])
    again = _merge(net, 0, 1)
    counts.append(net.devices()[1])
    net.finalize()
    net = ready(Net(version))
    other = _merge(net, 1, 0)
    _, props = net.properties(2)
    counts.append(net.devices()[1])
    send_line(counts=counts, again=list(again), other=list(other), name=ffi.string(props.name).decode())


def merge_unplaced(version: int) -> None:
    """Ask for devices of several and of one, where none is a PCI device."""
    net = ready(Net(version, Log()))
    results = [_merge(net, *parts)[0] for parts in [(0, 1), (1,)]]
    assert net.log
    lines = [line.text for line in net.log.lines if "makeVDevice" in line.text]
    send_line(several=results[0], single=results[1], lines=lines, warns=net.warns())


def reload(version: int) -> None:
    """Load, use and unload as NCCL 2.28 does around every last communicator."""
    for _ in range(RELOADS):
        net = ready(Net(version, Log()))
        with net.pair() as pair:
            pair.transfer([b"hello", pattern(100_000, 1)])
        net.finalize()
        net.unload()
        send_line(threads=thread_count(), files=len(open_files()), mappings=mapping_count())


def teardown(version: int) -> None:
    """Abort as NCCL does: with requests in flight, deregMr, unmap the buffers, and only then close.

    Whoever still wrote to or read from a buffer would crash the process here.
    """
    net = ready(Net(version))
    for round_ in range(6):
        with net.pair() as pair:
            place, source = Buffer(8 * MEBIBYTE), Buffer(8 * MEBIBYTE, pattern(8 * MEBIBYTE, round_))
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
            first_is_receiver = round_ % 2 == 0
            if first_is_receiver:
                assert net.deregister(pair.receiver, receive_mr) == abi.SUCCESS
                place.unmap()
            else:
                assert net.deregister(pair.sender, send_mr) == abi.SUCCESS
                source.unmap()
            for request in sends[:1] if first_is_receiver else []:
                if not request.done:
                    with contextlib.suppress(AssertionError):
                        net.finish(request, wait_s=0.2)
            if first_is_receiver:
                assert net.deregister(pair.sender, send_mr) == abi.SUCCESS
                source.unmap()
            else:
                assert net.deregister(pair.receiver, receive_mr) == abi.SUCCESS
                place.unmap()
    with net.pair() as pair:
        pair.transfer([b"and on"])
    net.finalize()
    send_line(threads=thread_count())


def _in_forked_child(net: Net, pair: Pair, listen: Any, incoming: Any) -> list[str]:
    """Try everything in the child; return what did not behave."""
    buffer, wrong = Buffer(64), []
    handle = ffi.new("char[]", 128)
    failing: list[tuple[str, Callable[[], int]]] = [
        ("listen", lambda: net.listen()[0]),
        ("connect", lambda: net.connect(handle)[0]),
        ("accept", lambda: net.accept(listen)[0]),
        ("isend", lambda: net.send(pair.sender, buffer.address, 8).result),
        ("irecv", lambda: net.receive(pair.receiver, buffer.address, 8).result),
        ("test", lambda: (net.test(incoming), incoming.result)[1]),
        ("init", lambda: Net(net.version, None).init()),
    ]
    wrong += [name for name, call in failing if call() == abi.SUCCESS]
    closing: list[tuple[str, Callable[[], int]]] = [
        ("closeSend", lambda: net.close_send(pair.sender)),
        ("closeRecv", lambda: net.close_receive(pair.receiver)),
        ("closeListen", lambda: net.close_listen(listen)),
        ("finalize", net.finalize),
    ]
    wrong += [name for name, call in closing if call() != abi.SUCCESS]
    return wrong


def fork(version: int) -> None:
    """Fork in the middle, as a data loader does: the child's calls fail, the parent's connection goes on."""
    net = ready(Net(version, None))
    _, _, listen = net.listen()
    with net.pair() as pair:
        pair.transfer([b"before"])
        place, source = Buffer(3 * MEBIBYTE), Buffer(3 * MEBIBYTE, pattern(3 * MEBIBYTE, 1))
        incoming, outgoing = pair.post_receive(place), pair.post_send(source)
        for _ in range(3):
            net.test(outgoing)
        pid = os.fork()
        if pid == 0:
            wrong = ["the child crashed"]
            try:
                wrong = _in_forked_child(net, pair, listen, incoming)
            finally:
                for name in wrong:
                    print(f"in the child: {name}", file=sys.stderr, flush=True)
                os._exit(len(wrong))
        net.finish(incoming, outgoing)
        assert (incoming.result, outgoing.result) == (abi.SUCCESS, abi.SUCCESS)
        assert place.read() == source.read()
        _, status = os.waitpid(pid, 0)
        pair.transfer([b"after", pattern(MEBIBYTE, 2)])
    assert net.close_listen(listen) == abi.SUCCESS
    net.finalize()
    send_line(child=os.waitstatus_to_exitcode(status), threads=thread_count())


def _fork_worker() -> int:
    """Fork a child that does nothing for as long as a test may take; return when it runs."""
    running, to_parent = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(WORKER_S)
        os.write(to_parent, b".")
        while True:
            signal.pause()
    os.read(running, 1)
    return pid


def listen_and_fork(version: int) -> None:
    """Listen, fork while a handshake is under way, then accept."""
    net = ready(Net(version, None))
    _, handle, listen = net.listen()
    files = len(open_files())
    send_line(handle=text_of(handle))
    until("somebody connects", lambda: len(open_files()) > files)
    send_line(worker=_fork_worker())
    net.accepted(listen)
    send_line(accepted=True)
    read_line()


def connect_and_fork(version: int) -> None:
    """Begin to connect to the handle that comes in, fork, then finish."""
    net = ready(Net(version, None))
    handle = handle_of(read_line()["handle"])
    assert net.connect(handle) == (abi.SUCCESS, ffi.NULL)
    send_line(worker=_fork_worker())
    net.connected(handle)
    send_line(connected=True)
    read_line()


def leave(version: int) -> None:
    """Exit with all kinds of things open."""
    net = ready(Net(version, None))
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
    net = ready(Net(version, None))
    with net.pair() as pair:
        pair.transfer([b"hello"])
        send_line(ready=True)
        while True:
            pair.transfer([b"hello"])


def receiver(version: int) -> None:
    """Listen, send the handle, then receive `n` messages of up to `size` bytes for each line."""
    net = ready(Net(version))
    _, handle, listen = net.listen()
    send_line(handle=text_of(handle), pid=os.getpid())
    comm = net.accepted(listen)
    send_line(accepted=True)
    while (order := read_line()) is not None:
        places = [Buffer(order["size"]) for _ in range(order["n"])]
        requests = [net.receive(comm, place.address, place.size) for place in places]
        send_line(posted=True)
        net.finish(*requests)
        send_line(
            results=[request.result for request in requests],
            sizes=[request.size for request in requests],
            sums=[sum(place.read()[: max(r.size, 0)]) for place, r in zip(places, requests, strict=True)],
            warns=net.warns(),
        )
    net.close_receive(comm)
    net.close_listen(listen)
    net.finalize()


def sender(version: int) -> None:
    """Connect to the handle that comes in, then send a message for each line that comes in."""
    net = ready(Net(version))
    handle = handle_of(read_line()["handle"])
    comm = net.connected(handle)
    send_line(connected=True, pid=os.getpid())
    while (order := read_line()) is not None:
        source = Buffer(order["size"], pattern(order["size"], 1))
        request = net.started(lambda source=source: net.send(comm, source.address, source.size))  # type: ignore[misc]
        net.finish(request)
        send_line(result=request.result)
    net.close_send(comm)
    net.finalize()


def hesitant(version: int) -> None:
    """Listen, and accept after the next line that comes in."""
    net = ready(Net(version, None))
    _, handle, listen = net.listen()
    send_line(handle=text_of(handle))
    if read_line() is None:
        return
    net.accepted(listen)
    send_line(accepted=True)
    read_line()


def sender_to_each(version: int) -> None:
    """Connect to the handles that come in, one after the other, then leave."""
    net = ready(Net(version, None))
    for text in read_line()["handles"]:
        handle = handle_of(text)
        net.connected(handle)
        send_line(connected=True)
    read_line()


def overrun(version: int) -> None:
    """Listen, accept nobody while others connect, report what that costs, connect to ourselves."""
    net = ready(Net(version, None))
    _, handle, listen = net.listen()
    files, memory = len(open_files()), resident_bytes()
    send_line(handle=text_of(handle))
    read_line()
    files, memory = len(open_files()) - files, resident_bytes() - memory
    with net.pair() as pair:
        pair.transfer([pattern(MEBIBYTE, 1)])
    send_line(files=files, memory=memory)
    read_line()
    net.close_listen(listen)
    net.finalize()
    send_line(threads=thread_count())


def crowd(version: int) -> None:
    """Connect many times with the one handle that comes in, until each has a comm or has failed."""
    net = ready(Net(version))
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

    until("all answered", all_were_answered)
    send_line(connected=results.count(abi.SUCCESS))

    def all_are_over() -> bool:
        poll()
        return not waiting

    until("all over", all_are_over)
    send_line(failed=results.count(abi.remote_error(version)), warns=net.warns())
    read_line()


def dial(version: int) -> None:
    """Connect to the handle that comes in until that fails; meanwhile our own listener accepts nobody."""
    net = ready(Net(version))
    _, own, listen = net.listen()
    send_line(handle=text_of(own))
    handle = handle_of(read_line()["handle"])
    results: list[int] = []

    def poll() -> bool:
        result, comm = net.connect(handle)
        assert comm == ffi.NULL
        results.append(result)
        if version != 4:  # there connect serves the listeners of the process
            assert net.accept(listen) == (abi.SUCCESS, ffi.NULL)
        return result != abi.SUCCESS

    until("refused", poll)
    send_line(result=results[-1], warns=net.warns())
    _, true_handle, other = net.listen()
    pair = Pair(net, *net.meet(true_handle, other))
    pair.transfer([b"others are unharmed"])
    pair.close()
    net.close_listen(other)
    net.close_listen(listen)
    net.finalize()
    send_line(threads=thread_count(), warns=net.warns())


def _forged_handle(net: Net, port: int) -> bytes:
    """Return a handle that leads to another port than ours, of another engine."""
    _, handle, listen = net.listen()
    forged = bytearray(ffi.buffer(handle))
    forged[8:10] = port.to_bytes(2, "big")
    forged[56] ^= 1
    net.close_listen(listen)
    return bytes(forged)


def give_up(version: int) -> None:
    """Begin to connect to one who never answers, then call nothing any more, as NCCL does in an abort."""
    net = ready(Net(version))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        forged = _forged_handle(net, silent.getsockname()[1])
        with net.pair() as pair:
            pair.transfer([b"all that is allocated once"])
        threads, files, resident = thread_count(), open_files(), resident_bytes()
        handles = [ffi.new("char[]", forged) for _ in range(3)]
        if version == 4:  # there connect waits, so it can only end by itself
            silent.close()
            assert net.connect(handles[0])[0] != abi.SUCCESS
            assert len(net.warns()) == 1
        for handle in handles if version != 4 else []:
            assert net.connect(handle) == (abi.SUCCESS, ffi.NULL)
            ffi.memmove(handle, b"\x5a" * len(forged), len(forged))  # NCCL frees it
        if version != 4:
            assert len(open_files()) > len(files)
        until_files_back(files)
        until("threads are back", lambda: thread_count() == threads)
        grown = resident_bytes() - resident
        untouched = [handle for handle in handles if set(ffi.buffer(handle)[: len(forged)]) == {0x5A}]
        with net.pair() as pair:
            pair.transfer([b"and on"])
        send_line(
            grown_bytes=grown,
            untouched=len(untouched),
            warns=net.warns(),
            threads=thread_count() - threads,
        )


def give_up_beside(version: int) -> None:
    """The same on an engine that a connection uses, which goes on; so does a connect that is polled."""
    net = ready(Net(version))
    with socket.create_server(("127.0.0.1", 0)) as silent, net.pair() as pair:
        forged = _forged_handle(net, silent.getsockname()[1])
        files = open_files()
        given_up, kept = (ffi.new("char[]", forged) for _ in range(2))
        ffi.memmove(given_up + 57, b"\xa5", 1)  # another engine: connects to one wait for one handshake
        assert net.connect(kept) == (abi.SUCCESS, ffi.NULL)
        with_kept = open_files()
        assert net.connect(given_up) == (abi.SUCCESS, ffi.NULL)

        def only_one_left() -> bool:
            pair.transfer([b"hello"])
            assert net.connect(kept) == (abi.SUCCESS, ffi.NULL)
            return len(open_files()) == len(with_kept)

        until("the one that was given up is ended", only_one_left)
        silent.setblocking(False)
        met = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                met += 1
        assert not with_kept.items() <= files.items()
        until_files_back(files)
        pair.transfer([b"goodbye"])
        send_line(met=met, warns=net.warns())


def cross(version: int) -> None:
    """Connect to another process while it connects here, from several threads; again and again.

    Of each line that comes in: {} listens, and prints the handles; handles connects to them, accepts, moves a
    message on each, prints the control connections, and waits for the next line, which closes all.
    """
    net = ready(Net(version))
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
        requests += [pair.post_send(Buffer(1000, pattern(1000, 1))) for pair in pairs]
        net.finish(*requests)
        assert all(place.read(1000) == pattern(1000, 1) for place in places)
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
    net = ready(Net(version))
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
    send_line(met=True)
    read_line()
    source = Buffer(MESSAGE_BYTES, pattern(MESSAGE_BYTES, 1))
    requests = [
        net.started(functools.partial(net.send, comm, source.address, source.size)) for comm in senders
    ]
    net.finish(*requests)
    send_line(sent=True)
    read_line()
    place = Buffer(MESSAGE_BYTES)
    for comm in receivers:
        place.fill(0)
        net.finish(net.receive(comm, place.address, place.size))
        assert place.read() == pattern(MESSAGE_BYTES, 1)
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


SCENARIOS: dict[str, Callable[[int], None]] = {
    scenario.__name__: scenario
    for scenario in (
        unconfigured,
        properties,
        merge,
        merge_again,
        merge_unplaced,
        matrix,
        reload,
        teardown,
        fork,
        listen_and_fork,
        connect_and_fork,
        leave,
        wait,
        receiver,
        sender,
        hesitant,
        sender_to_each,
        overrun,
        crowd,
        dial,
        give_up,
        give_up_beside,
        cross,
        scale,
    )
}

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    SCENARIOS[sys.argv[1]](int(sys.argv[2]))
