# SPDX-License-Identifier: Apache-2.0
"""One end of a connection as a process of its own, steered over its standard input.

It is for tests that need to know exactly what it waits for. `python -m tests.lab.peer` reads a JSON list a
line, [call, argument...], and answers each with a JSON line. Meanwhile it polls as NCCL does.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import deque
from typing import Any

from tests.conformance import abi
from tests.conformance.driver import Buffer, Net, Request, ffi, pattern_bytes, poll_until

ABI = 12
CHILD_S = 60
SPENT_BYTE = 0xC5  # in a buffer whose send is done
STREAM_DEPTH = 4  # messages of a stream under way


class Stream:
    """Messages of one size on one connection, one after the other without an end."""

    def __init__(self, net: Net, comm: Any, size: int, *, is_sender: bool) -> None:
        self.done_s: list[float] = []  # by the clock that all processes of a machine share
        self._buffers = deque(Buffer(size) for _ in range(STREAM_DEPTH))
        self._requests: deque[Request] = deque()
        self._call = net.send if is_sender else net.receive
        self._net, self._comm, self._size = net, comm, size

    def poll(self) -> None:
        """Keep STREAM_DEPTH messages under way, and note when they are done."""
        while len(self._requests) < STREAM_DEPTH:
            request = self._call(self._comm, self._buffers[0].address, self._size)
            assert request.result == abi.SUCCESS, self._net.warns()
            if request.pointer == ffi.NULL:
                break
            self._requests.append(request)
            self._buffers.rotate()
        while self._requests and self._net.test(self._requests[0]):
            assert self._requests[0].result == abi.SUCCESS, self._net.warns()
            self._requests.popleft()
            self.done_s.append(time.monotonic())


class Peer:
    """The calls that may be requested; each returns the answer."""

    def __init__(self) -> None:
        self.net = Net(ABI)
        assert self.net.init() == abi.SUCCESS, self.net.warns()
        self.listens: list[Any] = []
        self.comm: Any = ffi.NULL  # the comm of the last connect or accept
        self.comms: list[Any] = []
        self.streams: list[Stream] = []
        self.is_sender = False

    def listen(self) -> str:
        result, handle, listen = self.net.listen()
        assert result == abi.SUCCESS
        self.listens.append(listen)
        return bytes(ffi.buffer(handle)).hex()

    def accept(self) -> int:
        """Return the result of the accept that returned a comm or failed."""
        result = abi.SUCCESS

        def poll() -> bool:
            nonlocal result
            result, self.comm = self.net.accept(self.listens[-1])
            return result != abi.SUCCESS or bool(self.comm != ffi.NULL)

        poll_until("accepted", poll, wait_s=60)
        self._keep_comm()
        return result

    def connect(self, handle_hex: str) -> int:
        """Return the result of the connect that returned a comm or failed."""
        handle, result = ffi.new("char[]", bytes.fromhex(handle_hex)), abi.SUCCESS

        def poll() -> bool:
            nonlocal result
            result, self.comm = self.net.connect(handle)
            return result != abi.SUCCESS or bool(self.comm != ffi.NULL)

        self.is_sender = True
        poll_until("connected", poll, wait_s=60)
        self._keep_comm()
        return result

    def _keep_comm(self) -> None:
        self.comms += [] if self.comm == ffi.NULL else [self.comm]

    def transfer(self, count: int, size: int) -> list[int]:
        """Send or receive messages; return each one's result, and fail on a wrong byte."""
        buffers = [Buffer(size, pattern_bytes(size, seed) if self.is_sender else None) for seed in range(count)]
        if self.is_sender:
            requests = [self._started_send(buffer, size) for buffer in buffers]
        else:
            requests = [self.net.receive(self.comm, b.address, size) for b in buffers]
        self.net.finish(*requests)
        for seed, (buffer, request) in enumerate(zip(buffers, requests, strict=True)):
            if not self.is_sender and request.result == abi.SUCCESS:
                assert buffer.read() == pattern_bytes(size, seed), f"message {seed} is wrong"
        return [request.result for request in requests]

    def stream(self, sizes: list[int], count: int) -> list[float]:
        """Send or receive messages of a size on each connection, in the order in which those were made.

        Return when `count` messages of the first size are done, and when each of them was.
        """
        self.streams = [
            Stream(self.net, comm, size, is_sender=self.is_sender)
            for comm, size in zip(self.comms, sizes, strict=True)
        ]

        def poll() -> bool:
            for stream in self.streams:
                stream.poll()
            return len(self.streams[0].done_s) >= count

        poll_until(f"{count} messages of {sizes[0]} bytes", poll, wait_s=60, spin_s=60)
        return self.streams[0].done_s

    def _started_send(self, buffer: Buffer, size: int) -> Request:
        return self.net.started(lambda: self.net.send(self.comm, buffer.address, size))

    def forked_send(self, count: int, size: int) -> list[int]:
        """Send messages; a child that is forked meanwhile writes over its copies of their buffers.

        Each buffer is overwritten and unmapped as soon as its send is done.
        """
        buffers = [Buffer(size, pattern_bytes(size, seed)) for seed in range(count)]
        requests = [self._started_send(buffer, size) for buffer in buffers]
        child = os.fork()
        if not child:
            for buffer in buffers:
                buffer.fill(SPENT_BYTE)
            os._exit(0)
        for buffer, request in zip(buffers, requests, strict=True):
            self.net.finish(request)
            buffer.fill(SPENT_BYTE)
            buffer.unmap()
        assert os.waitpid(child, 0) == (child, 0)
        return [request.result for request in requests]

    def abandoned_send(self, count: int, size: int) -> list[str]:
        """Begin to send messages, close everything and unmap their buffers; return the log's lines."""
        buffers = [Buffer(size, pattern_bytes(size, seed)) for seed in range(count)]
        for buffer in buffers:
            self._started_send(buffer, size)
        lines = self.close()
        for buffer in buffers:
            buffer.unmap()
        return lines

    def fork(self) -> int:
        """Fork a child that lives on and does nothing, as a data loader's worker; return its number."""
        child = os.fork()
        if not child:
            signal.alarm(CHILD_S)
            signal.pause()
        return child

    def listened(self) -> bool:
        """Return whether a listen succeeds, which opens an engine."""
        self.net.init()
        result, _, listen = self.net.listen()
        if result == abi.SUCCESS:
            self.listens.append(listen)
        return result == abi.SUCCESS

    def hushed(self, seconds: float) -> list[str]:
        """Call nothing for so long; return the log's lines."""
        time.sleep(seconds)  # it is what is to be measured
        return self.log()

    def log(self) -> list[str]:
        """Return all log lines since the last time."""
        assert self.net.log is not None
        lines, self.net.log.lines = self.net.log.lines, []
        return [f"{'WARN' if line.level == abi.LEVEL_WARN else 'INFO'} {line.text}" for line in lines]

    def close(self) -> list[str]:
        """Close everything; return the log's lines."""
        for comm in self.comms:
            (self.net.close_send if self.is_sender else self.net.close_receive)(comm)
        self.comms.clear()
        self.comm = ffi.NULL
        for listen in self.listens:
            self.net.close_listen(listen)
        self.listens.clear()
        self.net.finalize()
        return self.log()


def main() -> None:
    peer = Peer()
    for line in sys.stdin:
        call, *arguments = json.loads(line)
        print(json.dumps(getattr(peer, call)(*arguments)), flush=True)
    # Threads of the plugin may still deliver and log: the interpreter stays, as NCCL's logger does.
    ctypes.CDLL(None).exit(0)


if __name__ == "__main__":
    main()
