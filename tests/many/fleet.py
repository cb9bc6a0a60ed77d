# SPDX-License-Identifier: Apache-2.0
"""Many ranks on the hosts of a lab, that move checked messages while faults come and go.

Round after round the ranks open a communicator (a ring, all pairs or random pairs), move messages and close
it; the ring stays open from round to round. What happens is drawn from a seed; when it happens depends on the
machine. A rank that is killed is started anew at the end of the round, after all have closed everything.
Now and then all close everything, and what each rank holds is compared with what it held the first time.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import random
import re
import selectors
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from harplab.lab.lab import Lab

PEER_TIMEOUT_S = 10
HANG_S = 150.0  # no step of a round takes so long, with a rank stopped in it
ERROR_S = 1.5 * PEER_TIMEOUT_S  # a killed rank's peers have their errors within
STOP_S = (0.1, 1.2 * PEER_TIMEOUT_S)  # also longer than the peer timeout
LINK_S = (0.2, 8.0)
LOSS_S = (1.0, 20.0)
STOPPED_MAX = 4
LOSS_SHARE = 0.01
FAULTS = {"kill": 2, "stop": 4, "down": 2, "unplug": 2, "loss": 3}  # how often, beside each other
PATTERNS = {"ring": 3, "all-to-all": 1, "pairs": 2}
RUNS = 3  # the runs of a communicator before it is closed
LOG_LINES = 30
CLOSED_S = 3.0 * PEER_TIMEOUT_S  # an engine is closed so long after its last connection
POLL_S = 0.1
READ_BYTES = 1 << 16
PROBE_S = 0.2  # a time of computing, which shows how slow the machine is
SLOWNESS_MAX = 6.0
HANDLE_BYTES = 132
MEMORY = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
THREADS = re.compile(r"^Threads:\s+(\d+)", re.MULTILINE)

Pair = tuple[int, int]  # from a rank to another


def measure_slowness() -> float:
    """Return by what factor this machine is slower than one with a core for us: other work takes the rest."""
    start_s, until_s = time.monotonic(), time.process_time() + PROBE_S
    while time.process_time() < until_s:
        pass
    return min(max((time.monotonic() - start_s) / PROBE_S, 1.0), SLOWNESS_MAX)


class Held(NamedTuple):
    """The resources that a process holds."""

    files: int
    threads: int
    memory_kib: int


def held_by(pid: int) -> Held:
    """Read what a process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    threads, memory = THREADS.search(status), MEMORY.search(status)
    assert threads
    assert memory
    return Held(len(list(Path(f"/proc/{pid}/fd").iterdir())), int(threads[1]), int(memory[1]))


NOTHING = Held(0, 0, 0)


@dataclass
class Summary:
    """The work of a job, and what became of it."""

    rounds: int = 0
    messages: int = 0
    bytes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    expected: int = 0  # errors of connections with a rank that was killed
    unexpected: list[str] = field(default_factory=list)
    late_s: float = 0.0  # the latest error of a send or receive after a kill
    grown: Held = NOTHING  # the most that a rank's holdings grew between two comparisons
    held: Held = NOTHING  # the most that a rank held at the last comparison

    def line(self) -> str:
        """Return it in one line."""
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())) or "none"
        held = ", ".join(
            f"{name} {now} (+{more})"
            for name, now, more in zip(("files", "threads", "KiB"), self.held, self.grown, strict=True)
        )
        return (
            f"{self.rounds} rounds, {self.messages} messages, {self.bytes / 1e6:.0f} MB; faults: {faults}; "
            f"errors: {self.expected} expected, the latest after {self.late_s:.1f} s, "
            f"{len(self.unexpected)} unexpected; idle: {held}"
        )


class Rank:
    """A process, and what it has answered."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.number = number
        self.host = number // fleet.ranks_per_host
        self.log = fleet.folder / f"log{number}"
        self.answers: list[list[str]] = []
        self.has_worked = False
        self.base: Held | None = None  # what it held at the first comparison
        self.stopped_until_s = 0.0  # when it was continued, or infinite
        local = number % fleet.ranks_per_host
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HARP_", "NCCL_"))},
            "HARP_IFNAME": "eni",
            "HARP_PEER_TIMEOUT": str(round(fleet.slowness * fleet.peer_timeout_s)),
            "HARP_SHARED_CLOCK": "on",
            "HARP_STATS_DIR": str(fleet.folder / "stats"),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(fleet.ranks_per_host),
        }
        argv = [str(fleet.program), str(fleet.plugin), str(number), str(fleet.count), str(fleet.exchange)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                fleet.lab.command(self.host, argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
            )
        assert self.process.stdin
        assert self.process.stdout
        self._input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._partial = b""

    def send(self, line: str) -> None:
        """Send a command."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._input, f"{line}\n".encode())

    def read(self) -> list[str] | None:
        """Return the lines that have come, of which there is at least a part; None at the end."""
        data = os.read(self.output, READ_BYTES)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()

    def tail(self) -> str:
        """Return the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join([f"---- rank {self.number} ----", *lines])


class JobError(AssertionError):
    """A rank hangs, or has ended without being killed."""


class Fleet:
    """The ranks of a job; a context manager that leaves none running and the lab as it was."""

    faults = FAULTS
    hang_s = HANG_S
    error_s = ERROR_S
    peer_timeout_s: float = PEER_TIMEOUT_S  # the peer timeout of ranks that are started

    def __init__(
        self, lab: Lab, program: Path, plugin: Path, folder: Path, ranks_per_host: int, seed: int
    ) -> None:
        self.lab, self.program, self.plugin, self.folder = lab, program, plugin, folder
        self.ranks_per_host = ranks_per_host
        self.count = ranks_per_host * len(lab.hosts)
        self.exchange = folder / "exchange"
        self.summary = Summary()
        self.slowness = measure_slowness()
        self.ranks: list[Rank] = []
        self._draw, self._draw_faults = random.Random(seed), random.Random(seed + 1)
        self._selector = selectors.DefaultSelector()
        self._lost: dict[int, float] = {}  # ranks killed in this round, and when
        self._ids = itertools.count(1)
        self._runs = itertools.count(1)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._faulty: set[int] = set()  # hosts of which an ENI is faulty
        self._stopped: set[int] = set()
        self._step = ""
        self._fault_mean_s = 0.0
        self.loss_s = LOSS_S  # how long an ENI loses packets

    def __enter__(self) -> Fleet:
        self.exchange.write_bytes(bytes(HANDLE_BYTES * self.count * self.count))
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_ranks)
            for number in range(self.count):
                self.ranks.append(self._start_rank(number))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start_rank(self, number: int) -> Rank:
        rank = Rank(self, number)
        self._selector.register(rank.output, selectors.EVENT_READ, rank)
        return rank

    def _end_ranks(self) -> None:
        for rank in self.ranks:
            rank.end()
        self._selector.close()

    # ---- a job ----

    def run(self, seconds: float, fault_mean_s: float, compare_s: float, tell: Callable[[str], None]) -> None:
        """Do rounds for so long; compare what is held, and tell the state, each `compare_s`."""
        self._fault_mean_s = fault_mean_s
        began_s = compared_s = time.monotonic()
        self._run_round("all-to-all", 0)
        self._compare_growth()
        self._do_after(0, self._next_fault)
        ring = 0
        while time.monotonic() < began_s + seconds:
            (pattern,) = self._draw.choices(list(PATTERNS), list(PATTERNS.values()))
            ring = self._run_round(pattern, ring)
            if time.monotonic() > compared_s + compare_s:
                compared_s = time.monotonic()
                self._close_communicator(ring)
                ring = 0
                self._renew_lost()
                self._compare_growth()
                tell(f"{compared_s - began_s:.0f} s: {self.summary.line()}")
        self._fault_mean_s = 0.0
        while self._timers:
            self._read_lines(1.0)
        self._run_round("all-to-all", 0)
        self._close_communicator(ring)
        self._renew_lost()
        self._compare_growth()

    def connect_all(self) -> int:
        """Connect each rank to each other one, and close that; return how many connections there were."""
        self._close_communicator(self._open_communicator("all-to-all"))
        return self.count * (self.count - 1)

    def _run_round(self, pattern: str, ring: int) -> int:
        """Do a round; return the communicator of the ring that stays open."""
        communicator = ring if pattern == "ring" and ring else self._open_communicator(pattern)
        for _ in range(RUNS):
            if not self._lost:
                self._move_data(communicator, pattern)
        if pattern == "ring":
            ring = communicator
        else:
            self._close_communicator(communicator)
        self.summary.rounds += 1
        if self._lost:
            self._close_communicator(ring)
            ring = 0
            self._renew_lost()
        return ring

    def _pairs_of(self, pattern: str) -> list[Pair]:
        everyone = range(self.count)
        if pattern == "ring":
            return [(rank, (rank + 1) % self.count) for rank in everyone]
        every = list(itertools.permutations(everyone, 2))
        return (
            every if pattern == "all-to-all" else sorted(self._draw.sample(every, min(2 * self.count, len(every))))
        )

    def _open_communicator(self, pattern: str) -> int:
        communicator = next(self._ids)
        words: list[list[str]] = [[] for _ in range(self.count)]
        for one, other in self._pairs_of(pattern):
            words[one].append(f"s{other}")
            words[other].append(f"r{one}")
        for rank in self._living_ranks():
            rank.send(" ".join(["open", str(communicator), *words[rank.number]]))
        self._await_step(f"open {pattern}", f"opened {communicator}")
        return communicator

    def _move_data(self, communicator: int, pattern: str) -> None:
        run = next(self._runs)
        count, size = {"ring": (40, 1 << 20), "all-to-all": (4, 1 << 15), "pairs": (20, 1 << 18)}[pattern]
        for rank in self._living_ranks():
            rank.send(f"run {communicator} {run} {count} {size}")
        for answer in self._await_step(f"run {pattern}", f"ran {communicator}"):
            self.summary.messages += int(answer[2])
            self.summary.bytes += int(answer[3])
        for rank in self._living_ranks():
            rank.has_worked = True

    def _close_communicator(self, communicator: int) -> None:
        if not communicator:
            return
        for rank in self._living_ranks():
            rank.send(f"close {communicator}")
        self._await_step("close", f"closed {communicator}")

    def _renew_lost(self) -> None:
        for number in self._lost:
            self.ranks[number].end()
            self.ranks[number] = self._start_rank(number)
        self._lost.clear()

    def _compare_growth(self) -> None:
        """Compare what each rank holds, that has nothing open, with what it held the first time."""
        deadline_s = time.monotonic() + self.slowness * CLOSED_S
        while still := [rank for rank in self._living_ranks() if held_by(rank.process.pid).threads > 1]:
            if time.monotonic() > deadline_s:
                numbers = [rank.number for rank in still]
                self._fail_ranks(f"ranks {numbers} still have an engine after all was closed", still)
            self._read_lines(POLL_S)
        for rank in self._living_ranks():
            now = held_by(rank.process.pid)
            rank.base = rank.base or (now if rank.has_worked else None)
            if rank.base:
                grown = (one - base for one, base in zip(now, rank.base, strict=True))
                self.summary.grown = Held(*map(max, self.summary.grown, grown))
                self.summary.held = Held(*map(max, self.summary.held, now))

    # ---- waiting ----

    def _living_ranks(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.number not in self._lost]

    def _await_step(self, step: str, words: str) -> list[list[str]]:
        """Return the answers with these words of all ranks but those that are killed meanwhile."""
        self._step = step
        wanted = words.split()
        hang_s = self.slowness * self.hang_s
        deadline_s = time.monotonic() + hang_s
        while waiting := [rank for rank in self._living_ranks() if not rank.answers]:
            if time.monotonic() > deadline_s:
                silent = [rank.number for rank in waiting]
                self._fail_ranks(f"HANG: no answer to `{step}` within {hang_s:.0f} s from ranks {silent}", waiting)
            self._read_lines(1.0)
        answers = [rank.answers.pop() for rank in self._living_ranks()]
        assert all(answer[: len(wanted)] == wanted for answer in answers), answers
        for rank in self.ranks:
            rank.answers.clear()
        self._step = ""
        return answers

    def _read_lines(self, wait_s: float) -> None:
        """Take what the ranks say, and do what is due."""
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        until_s = self._timers[0][0] - time.monotonic() if self._timers else wait_s
        for key, _ in self._selector.select(max(0.0, min(wait_s, until_s))):
            rank: Rank = key.data
            lines = rank.read()
            if lines is None:
                self._fail_ranks(f"rank {rank.number} ended with {rank.process.wait()}", [rank])
            for line in lines or ():
                self._on_line(rank, line)

    def _on_line(self, rank: Rank, line: str) -> None:
        word, *rest = line.split()
        if word == "warn":
            if not self._lost:
                self.summary.unexpected.append(f"rank {rank.number}: {line}")
        elif word == "error":
            self._on_error(rank, rest, line)
        else:
            rank.answers.append([word, *rest])

    def _on_error(self, rank: Rank, words: list[str], line: str) -> None:
        _, peer, at_s, call = words
        killed_s = self._lost.get(int(peer))
        if killed_s is None:
            self.summary.unexpected.append(f"rank {rank.number}: {line}")
            return
        self.summary.expected += 1
        late_s = float(at_s) - max(killed_s, rank.stopped_until_s)
        # Who connects to a process that is gone tries until the peer timeout.
        is_connected = call in {"send", "receive"}
        if is_connected:
            self.summary.late_s = max(self.summary.late_s, late_s)
        if late_s > self.slowness * (self.error_s if is_connected else 1.5 * self.peer_timeout_s):
            self.summary.unexpected.append(f"rank {rank.number}, {late_s:.1f} s after the kill: {line}")

    def _fail_ranks(self, what: str, ranks: list[Rank]) -> None:
        tails = "\n".join(rank.tail() for rank in ranks[:4])
        raise JobError(f"{what}\nat {self._step}, {self.summary.line()}\n{tails}")

    # ---- faults ----

    def _do_after(self, delay_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._numbers), do))

    def _next_fault(self) -> None:
        if not self._fault_mean_s:
            return
        (kind,) = self._draw_faults.choices(list(self.faults), list(self.faults.values()))
        rank = self._draw_faults.choice(self.ranks)
        eni = self._draw_faults.randrange(len(self.lab.enis))
        share = self._draw_faults.random()
        if kind == "kill":
            self._kill_rank(rank)
        elif kind == "stop":
            self._stop_rank(rank, _draw_between(STOP_S, share))
        elif kind == "loss":
            self._lose_packets(rank.host, eni, _draw_between(self.loss_s, share))
        else:
            self._cut_link(kind, rank.host, eni, _draw_between(LINK_S, share))
        self._do_after(self._draw_faults.expovariate(1 / self._fault_mean_s), self._next_fault)

    def _kill_rank(self, rank: Rank) -> None:
        """Kill a rank while all connect or move data; one in a round."""
        if self._lost:
            return
        if not self._step.startswith(("open", "run")):
            self._do_after(POLL_S, lambda: self._kill_rank(rank))
            return
        self.summary.faults["kill"] += 1
        self._lost[rank.number] = time.monotonic()
        self._selector.unregister(rank.output)
        rank.process.kill()
        for other in self._living_ranks():
            other.send(f"lost {rank.number}")

    def _stop_rank(self, rank: Rank, seconds: float) -> None:
        if len(self._stopped) >= STOPPED_MAX or rank.number in self._stopped or rank.number in self._lost:
            return
        self.summary.faults["stop"] += 1
        self._stopped.add(rank.number)
        rank.stopped_until_s = float("inf")
        rank.process.send_signal(signal.SIGSTOP)

        def go_on() -> None:
            self._stopped.remove(rank.number)
            rank.process.send_signal(signal.SIGCONT)
            rank.stopped_until_s = time.monotonic()

        self._do_after(seconds, go_on)

    def _cut_link(self, kind: str, host: int, eni: int, seconds: float) -> None:
        """Take the link of an ENI down, or its cable out; another ENI of the host works."""
        take, restore = {
            "down": (self.lab.link_down, self.lab.link_up),
            "unplug": (self.lab.unplug, self.lab.plug),
        }[kind]
        self._inject_fault(kind, host, seconds, lambda: take(host, eni), lambda: restore(host, eni))

    def _lose_packets(self, host: int, eni: int, seconds: float) -> None:
        faults = self.lab.faults(host, eni)
        self._inject_fault("loss", host, seconds, lambda: faults.drop(LOSS_SHARE), faults.clear)

    def _inject_fault(
        self, kind: str, host: int, seconds: float, begin: Callable[[], object], end: Callable[[], object]
    ) -> None:
        if host in self._faulty:
            return
        self.summary.faults[kind] += 1
        self._faulty.add(host)
        begin()

        def heal() -> None:
            end()
            self._faulty.remove(host)

        self._do_after(seconds, heal)


def _draw_between(bounds: tuple[float, float], share: float) -> float:
    """Return a time between two, as often in each octave."""
    least, most = bounds
    return float(least * (most / least) ** share)
