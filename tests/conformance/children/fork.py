# SPDX-License-Identifier: Apache-2.0
"""Scenarios of forks: in the middle of a transfer, and on either side of a handshake."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.conformance import abi
from tests.conformance.children.lines import init_net, read_line, send_line
from tests.conformance.driver import (
    MEBIBYTE,
    Buffer,
    Log,
    Net,
    Pair,
    ffi,
    handle_of,
    open_files,
    pattern_bytes,
    poll_until,
    text_of,
    thread_count,
)

WORKER_S = 90
LOCKED_EXIT = 77


class LockedLog(Log):
    """A logger whose lock another thread held at the fork: a call of it in the child would not return."""

    is_locked = False

    def _on_line(self, level: int, flags: int, where: Any, line: int, fmt: Any, text: Any) -> None:
        if self.is_locked:
            os._exit(LOCKED_EXIT)
        super()._on_line(level, flags, where, line, fmt, text)


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
    log = LockedLog()
    net = init_net(Net(version, log))
    _, _, listen = net.listen()
    with net.pair() as pair:
        pair.transfer([b"before"])
        place, source = Buffer(3 * MEBIBYTE), Buffer(3 * MEBIBYTE, pattern_bytes(3 * MEBIBYTE, 1))
        incoming, outgoing = pair.post_receive(place), pair.post_send(source)
        for _ in range(3):
            net.test(outgoing)
        pid = os.fork()
        if pid == 0:
            wrong = ["the child crashed"]
            log.is_locked = True
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
        pair.transfer([b"after", pattern_bytes(MEBIBYTE, 2)])
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
    net = init_net(Net(version, None))
    _, handle, listen = net.listen()
    files = len(open_files())
    send_line(handle=text_of(handle))
    poll_until("somebody connects", lambda: len(open_files()) > files)
    send_line(worker=_fork_worker())
    net.accepted(listen)
    send_line(accepted=True)
    read_line()


def connect_and_fork(version: int) -> None:
    """Begin to connect to the handle that comes in, fork, then finish."""
    net = init_net(Net(version, None))
    handle = handle_of(read_line()["handle"])
    assert net.connect(handle) == (abi.SUCCESS, ffi.NULL)
    send_line(worker=_fork_worker())
    net.connected(handle)
    send_line(connected=True)
    read_line()
