# SPDX-License-Identifier: Apache-2.0
"""One end of a connection as a process of its own, steered over its standard input.

It is for tests that need to know exactly what it waits for. `python -m tests.lab.peer` reads a JSON list a
line, [call, argument...], and answers each with a JSON line. Meanwhile it polls as NCCL does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from tests.conformance import abi
from tests.conformance.driver import Buffer, Net, Request, ffi, pattern, until

ABI = 12
CHILD_S = 60


class Peer:
    """The calls that may be requested; each returns the answer."""

    def __init__(self) -> None:
        self.net = Net(ABI)
        assert self.net.init() == abi.SUCCESS, self.net.warns()
        self.listens: list[Any] = []
        self.comm: Any = ffi.NULL
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
            result, self.comm = self.net.accept(self.listens[0])
            return result != abi.SUCCESS or bool(self.comm != ffi.NULL)

        until("accepted", poll, wait_s=60)
        return result

    def connect(self, handle_hex: str) -> int:
        """Return the result of the connect that returned a comm or failed."""
        handle, result = ffi.new("char[]", bytes.fromhex(handle_hex)), abi.SUCCESS

        def poll() -> bool:
            nonlocal result
            result, self.comm = self.net.connect(handle)
            return result != abi.SUCCESS or bool(self.comm != ffi.NULL)

        self.is_sender = True
        until("connected", poll, wait_s=60)
        return result

    def transfer(self, count: int, size: int) -> list[int]:
        """Send or receive messages; return each one's result, and fail on a wrong byte."""
        buffers = [Buffer(size, pattern(size, seed) if self.is_sender else None) for seed in range(count)]
        if self.is_sender:
            requests = [self._started_send(buffer, size) for buffer in buffers]
        else:
            requests = [self.net.receive(self.comm, b.address, size) for b in buffers]
        self.net.finish(*requests)
        for seed, (buffer, request) in enumerate(zip(buffers, requests, strict=True)):
            if not self.is_sender and request.result == abi.SUCCESS:
                assert buffer.read() == pattern(size, seed), f"message {seed} is wrong"
        return [request.result for request in requests]

    def _started_send(self, buffer: Buffer, size: int) -> Request:
        return self.net.started(lambda: self.net.send(self.comm, buffer.address, size))

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
        if self.comm != ffi.NULL:
            (self.net.close_send if self.is_sender else self.net.close_receive)(self.comm)
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


if __name__ == "__main__":
    main()
