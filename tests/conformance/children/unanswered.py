# SPDX-License-Identifier: Apache-2.0
"""Scenarios of connects that nobody answers: they fail, or NCCL gives them up."""

from __future__ import annotations

import contextlib
import socket

from tests.conformance import abi
from tests.conformance.children.lines import init_net, read_line, send_line
from tests.conformance.driver import (
    Net,
    Pair,
    ffi,
    handle_of,
    open_files,
    poll_until,
    resident_bytes,
    text_of,
    thread_count,
    until_files_back,
)


def dial(version: int) -> None:
    """Connect to the handle that comes in until that fails; meanwhile our own listener accepts nobody."""
    net = init_net(Net(version))
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

    poll_until("refused", poll)
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
    forged[6:8] = port.to_bytes(2, "big")
    forged[8] ^= 1
    net.close_listen(listen)
    return bytes(forged)


def give_up(version: int) -> None:
    """Begin to connect to one who never answers, then call nothing any more, as NCCL does in an abort."""
    net = init_net(Net(version))
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
        poll_until("threads are back", lambda: thread_count() == threads)
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
    """Give up on an engine that a connection uses, which goes on; so does a connect that is polled."""
    net = init_net(Net(version))
    with socket.create_server(("127.0.0.1", 0)) as silent, net.pair() as pair:
        forged = _forged_handle(net, silent.getsockname()[1])
        files = open_files()
        given_up, kept = (ffi.new("char[]", forged) for _ in range(2))
        ffi.memmove(given_up + 9, b"\xa5", 1)  # another engine: connects to one wait for one handshake
        assert net.connect(kept) == (abi.SUCCESS, ffi.NULL)
        with_kept = open_files()
        assert net.connect(given_up) == (abi.SUCCESS, ffi.NULL)

        def only_one_left() -> bool:
            pair.transfer([b"hello"])
            assert net.connect(kept) == (abi.SUCCESS, ffi.NULL)
            return len(open_files()) == len(with_kept)

        poll_until("the one that was given up is ended", only_one_left)
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
