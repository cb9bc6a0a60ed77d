# SPDX-License-Identifier: Apache-2.0
"""The ssh sessions in which hosts play their parts, one a host, for as long as the preflight lasts."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from harpctl.doctor.ways import Way
from harpctl.errors import ExitCode, HarpError
from harpctl.fleet import JSON, SSH, Answer, Remote, judge
from harpctl.preflight.model import Asked, Own

END_S = 5.0  # how long a host may take to end its part
T = TypeVar("T")


class Limit:
    """The time by which all is to be over."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left, 0 when none is."""
        return max(self._end - time.monotonic(), 0.0)


class Part:
    """One host's part: its process, what it says of itself, or why it says nothing."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.own: Own | None = None
        self.failure: Answer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the part

    def open(self, remote: Remote, words: Sequence[str], seconds: float) -> None:
        """Start it and hear what the host is; a host that does not say so has a failure instead."""
        command = remote.command([words[0], JSON, *words[1:]])
        try:
            self._process = subprocess.Popen(
                [*SSH, "--", self.host, command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except FileNotFoundError:
            raise HarpError(
                "ssh is not installed here.", "Install it: openssh-client.", ExitCode.MISSING
            ) from None
        if remote.file:
            with contextlib.suppress(BrokenPipeError), Path(remote.file).open("rb") as file:
                shutil.copyfileobj(file, self._stdin)
                self._stdin.flush()
        self.own = self._hear(Own, seconds)

    def probe(self, asked: Asked, seconds: float) -> tuple[Way, ...]:
        """Let the host probe ways; none where it did not answer in time, which is a failure then."""
        if self.own is None or not asked.ways:
            return ()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(msgspec.json.encode(asked) + b"\n")
            self._stdin.flush()
        return self._hear(tuple[Way, ...], seconds) or ()

    def close(self) -> None:
        """End the part, and the process if it does not."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            self._process.kill()
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
        self._errors.close()

    @property
    def _stdin(self) -> IO[bytes]:
        if self._process is None or self._process.stdin is None:
            raise AssertionError(self.host)
        return self._process.stdin

    def _hear(self, type_: type[T], seconds: float) -> T | None:
        """Return the next line that is of a type; what a login shell says before it is passed over."""
        process = self._process
        if process is None or process.stdout is None:
            return None
        late = threading.Timer(seconds, process.kill)
        late.start()
        heard = b""
        try:
            for line in process.stdout:
                heard += line
                with contextlib.suppress(msgspec.MsgspecError):
                    return msgspec.json.decode(line, type=type_)
            code = process.wait()
        finally:
            late.cancel()
        is_late = code == -9
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        self.failure = judge(self.host, code, heard.decode(errors="replace"), said)
        if is_late:
            self.failure = Answer(
                host=self.host,
                result="timed out",
                code=int(ExitCode.FAILED),
                detail="it did not answer in time",
                remedy="See what it does there, or allow more: --within SECONDS",
            )
        self.own = None
        return None


class Parts:
    """The parts of all hosts; a context manager that leaves no process behind."""

    def __init__(self, hosts: Sequence[str], remote: Remote, words: Sequence[str], limit: Limit) -> None:
        self._parts = {host: Part(host) for host in hosts}
        self._remote, self._words, self._limit = remote, words, limit

    def __enter__(self) -> Parts:
        try:
            self._all(lambda part: part.open(self._remote, self._words, self._limit.left()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._all(Part.close)

    @property
    def owns(self) -> dict[str, Own]:
        """Return what the hosts are that play."""
        return {host: part.own for host, part in self._parts.items() if part.own is not None}

    @property
    def failures(self) -> tuple[Answer, ...]:
        """Return what came of the hosts that do not play."""
        return tuple(part.failure for part in self._parts.values() if part.failure is not None)

    def probe(self, asked: dict[str, Asked], seconds: float) -> dict[str, tuple[Way, ...]]:
        """Let all hosts probe at once; return what each found out."""
        found: dict[str, tuple[Way, ...]] = {}

        def one(part: Part) -> None:
            if part.host in asked:
                found[part.host] = part.probe(asked[part.host], seconds)

        self._all(one)
        return {host: found[host] for host in self._parts if host in found}

    def _all(self, do: Callable[[Part], None]) -> None:
        parts: Iterable[Part] = self._parts.values()
        with ThreadPoolExecutor(max(len(self._parts), 1)) as pool:
            list(pool.map(do, parts))
