# SPDX-License-Identifier: Apache-2.0
"""The ssh sessions that run an agent on each host for as long as the preflight lasts."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.fleet import JSON, Answer, Remote, answer_of
from harpctl.preflight.model import HostState, Request
from harpctl.records import decode_json
from harpctl.ssh import OUTPUT_BYTES_MAX, not_installed, ssh_words

END_S = 5.0  # how long a host may take to end its part
T = TypeVar("T")


class Deadline:
    """The time by which a preflight ends."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left, 0 when none is."""
        return max(self._end - time.monotonic(), 0.0)


class Agent:
    """One host's agent: its ssh process, the host's state, or its failure."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.state: HostState | None = None
        self.failure: Answer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the part

    def open(self, remote: Remote, words: Sequence[str], seconds: float) -> None:
        """Start the agent and read the host's state, or set its failure."""
        command = remote.command([words[0], JSON, *words[1:]])
        try:
            self._process = subprocess.Popen(
                ssh_words(self.host, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except FileNotFoundError:
            raise not_installed() from None
        if remote.file:
            with contextlib.suppress(BrokenPipeError), Path(remote.file).open("rb") as file:
                shutil.copyfileobj(file, self._stdin)
                self._stdin.flush()
        self.state = self._read_answer(HostState, seconds)

    def ask(self, request: Request, type_: type[T], seconds: float) -> T | None:
        """Return the host's answer; None, and a failure, where it did not answer in time."""
        if self.state is None:
            return None
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(msgspec.json.encode(request) + b"\n")
            self._stdin.flush()
        return self._read_answer(type_, seconds)

    def close(self) -> None:
        """End the agent, and the process if it does not."""
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

    def _read_answer(self, type_: type[T], seconds: float) -> T | None:
        """Return the next line that is of a type; earlier output of a login shell is skipped."""
        process = self._process
        if process is None or process.stdout is None:
            return None
        late = threading.Timer(seconds, process.kill)
        late.start()
        output = bytearray()
        try:
            while (line := process.stdout.readline(OUTPUT_BYTES_MAX)) and len(output) < OUTPUT_BYTES_MAX:
                output += line
                with contextlib.suppress(HarpError):
                    return decode_json(line, type_, "Its answer")
            process.stdout.close()  # a process that writes too much ends by it
            code = process.wait()
        finally:
            late.cancel()
        is_late = code == -9
        self._errors.seek(0)
        errors = self._errors.read(OUTPUT_BYTES_MAX).decode(errors="replace")
        self.failure = answer_of(self.host, code, output.decode(errors="replace"), errors)
        if is_late:
            self.failure = Answer(
                host=self.host,
                result="timed out",
                code=int(ExitCode.FAILED),
                detail="it did not answer in time",
                remedy="See what it does there, or allow more: --within SECONDS",
            )
        self.state = None
        return None


class Agents:
    """The agents of all hosts; a context manager that leaves no process behind."""

    def __init__(self, hosts: Sequence[str], remote: Remote, words: Sequence[str], deadline: Deadline) -> None:
        self._agents = {host: Agent(host) for host in hosts}
        self._remote, self._words, self._deadline = remote, words, deadline

    def __enter__(self) -> Agents:
        try:
            self._run_for_all(lambda agent: agent.open(self._remote, self._words, self._deadline.left()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._run_for_all(Agent.close)

    @property
    def states(self) -> dict[str, HostState]:
        """Return the states of the hosts whose agents answer."""
        return {host: agent.state for host, agent in self._agents.items() if agent.state is not None}

    @property
    def failures(self) -> tuple[Answer, ...]:
        """Return the failures of the other hosts."""
        return tuple(agent.failure for agent in self._agents.values() if agent.failure is not None)

    def ask(self, requests: Mapping[str, Request], type_: type[T], seconds: float) -> dict[str, T]:
        """Ask hosts at once; return the answers that came."""
        found: dict[str, T] = {}

        def one(agent: Agent) -> None:
            request = requests.get(agent.host)
            answer = agent.ask(request, type_, seconds) if request else None
            if answer is not None:
                found[agent.host] = answer

        self._run_for_all(one)
        return found

    def _run_for_all(self, do: Callable[[Agent], None]) -> None:
        agents: Iterable[Agent] = self._agents.values()
        with ThreadPoolExecutor(max(len(self._agents), 1)) as pool:
            list(pool.map(do, agents))
