# SPDX-License-Identifier: Apache-2.0
"""Scenarios of children/ in processes of their own, and how soon an error is to come."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance import abi
from tests.conformance.driver import Net, Request

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 90
PROMISED_S = 1.0  # how soon the death of a peer is an error
GONE_S = 10.0  # what a loaded machine gets before a test calls it a hang
TRIES = 3  # the soonest counts: the machine may be slow, the promise is not
NEW_AND_OLD = [4, 12]  # the tables between them differ in shape alone, which the other files cover
OF_EACH_INIT = [4, 10, 12]  # a version of each signature of init

# The versions without a context keep their configuration for the process, so it is the same for all tests
# here; what needs another one runs in a process of its own.
# Small messages go over the one carrier, large ones over the other.
ENVIRONMENT = {"HARP_IFNAME": "=lo", "HARP_ENGINE": "inline", "HARP_PATHS": "1", "HARP_DRIVER": "udp+tcp"}


class Child:
    """One scenario of children/ in a process; what it prints are JSON lines."""

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

    def read_line(self) -> dict[str, Any]:
        """Read one line; what the process got last, when it ended instead."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise AssertionError(f"ended with {self.process.wait(TIMEOUT_S)}: {self._error_text()}")
        decoded: dict[str, Any] = json.loads(text)
        return decoded

    def send_line(self, **facts: Any) -> None:
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
        assert code == 0, f"ended with {code}: {out}{self._error_text()}"
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

    def _error_text(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


Start = Callable[..., Child]


def expect_soon(test: Callable[..., float]) -> Callable[..., None]:
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
