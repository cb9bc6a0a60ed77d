# SPDX-License-Identifier: Apache-2.0
"""Runs on cores that stay equally far apart: the ranks' cores, and the time between the first two.

The host of a virtual machine moves its cores, to physical ones that share a cache or to different dies.
The round trip of a cache line between two cores then takes severalfold as long, and messages of any transport
twice as long: runs before and after such a move can't be compared. So the round trip is measured before and
after each run, and a run beside which it was long is made again, in its place among the others.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from harpctl.errors import ExitCode, HarpError

APART = 2.0  # times the least round trip: the cores are apart
FIRST_READINGS = 10  # before the first run, to know the least
FIRST_PAUSE_S = 0.2  # between these: cores stay apart for seconds
AGAIN_PER_RUN = 3  # bounds how many runs are made again
WAITS_PER_RUN = 20  # bounds how often a run waits for cores that are apart
WAIT_S = 0.25
READ_TIMEOUT_S = 60.0
NEAR_CANDIDATES_MAX = 16
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class CoreFigures:
    """The ranks' cores, the round trip of a cache line between the first two, and what followed from it."""

    cores: tuple[int, ...]
    least_ns: float  # the least of all readings
    beside_min_ns: float  # the least of the readings beside the runs that were kept
    beside_max_ns: float
    made_again: int  # runs
    kept_apart: int  # runs


class Watch:
    """Takes the runs that count; this one takes them as they come."""

    def take(self, run: Callable[[], T], is_wrong: Callable[[T], bool]) -> T:
        """Make a run, again if need be, and return its result; one with wrong data is always the last."""
        del is_wrong
        return run()

    def figures(self) -> CoreFigures | None:
        """Return what is known of the cores after the last run."""
        return None

    def notes(self) -> list[str]:
        """Return the notes below the table."""
        return []


UNWATCHED = Watch()


class CoreWatch(Watch):
    """Makes a run again while the cores are apart before or after it, `again_max` times in all.

    Apart is what takes more than twice the least round trip so far. Before a run they are waited for,
    `waits_max` times WAIT_S in all. Of the runs that were kept, those beside
    cores that were apart are counted: from before a lower one was seen, when no more could be made again, or
    with wrong data, which must not get lost.
    """

    def __init__(
        self,
        cores: Sequence[int],
        read_ns: Callable[[], float],
        again_max: int,
        waits_max: int = 0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cores, self._read_ns, self._again_max = tuple(cores), read_ns, again_max
        self._waits_left, self._pause = waits_max, pause
        self._least_ns = float("inf")
        self._kept: list[tuple[float, float]] = []  # the readings before and after each run
        self._again = 0

    def learn_least(self) -> None:
        """Read several times, so that the cores are found near each other before the first run."""
        for number in range(FIRST_READINGS):
            if number:
                self._pause(FIRST_PAUSE_S)
            self._reading_ns()

    def take(self, run: Callable[[], T], is_wrong: Callable[[T], bool]) -> T:
        """Make a run until the cores are near each other before and after it, or its data is wrong."""
        while True:
            before_ns = self._near_reading_ns()
            result = run()
            beside = (before_ns, self._reading_ns())
            if not self._is_apart(beside) or self._again == self._again_max or is_wrong(result):
                self._kept.append(beside)
                return result
            self._again += 1

    def figures(self) -> CoreFigures | None:
        """Return the figures of the runs that were kept; None without any."""
        if not self._kept:
            return None
        beside_ns = [reading_ns for beside in self._kept for reading_ns in beside]
        return CoreFigures(
            cores=self._cores,
            least_ns=self._least_ns,
            beside_min_ns=min(beside_ns),
            beside_max_ns=max(beside_ns),
            made_again=self._again,
            kept_apart=sum(map(self._is_apart, self._kept)),
        )

    def notes(self) -> list[str]:
        """Return where the ranks were, how far apart these cores were, and what was not kept or not good."""
        found = self.figures()
        if found is None:
            return []
        first, second = found.cores[:2]
        span = f"{found.beside_min_ns:.0f} to {found.beside_max_ns:.0f} ns"
        notes = [
            f"ranks on cores {','.join(map(str, found.cores))}; {found.made_again} run(s) made again",
            f"a cache line from core {first} to {second} and back: {span} beside the runs",
        ]
        if found.kept_apart:
            limit = f"more than {APART:g} times the least, {found.least_ns:.0f} ns"
            notes.append(f"{found.kept_apart} run(s) kept beside {limit}: don't compare them with the others")
        return notes

    def _reading_ns(self) -> float:
        reading_ns = self._read_ns()
        self._least_ns = min(self._least_ns, reading_ns)
        return reading_ns

    def _near_reading_ns(self) -> float:
        reading_ns = self._reading_ns()
        while self._waits_left and self._is_apart((reading_ns,)):
            self._waits_left -= 1
            self._pause(WAIT_S)
            reading_ns = self._reading_ns()
        return reading_ns

    def _is_apart(self, beside_ns: Sequence[float]) -> bool:
        return max(beside_ns) > APART * self._least_ns


def open_watch(perf: Path, cores: Sequence[int], runs: int) -> CoreWatch:
    """Make the watch of these cores for a number of runs, and let it learn the least round trip."""
    again_max, waits_max = AGAIN_PER_RUN * runs, WAITS_PER_RUN * runs
    watch = CoreWatch(cores, lambda: read_latency_ns(perf, cores), again_max, waits_max)
    watch.learn_least()
    return watch


def read_latency_ns(perf: Path, cores: Sequence[int]) -> float:
    """Let harp-perf measure the round trip of a cache line between the first two cores."""
    argv = [str(perf), "--core-latency", f"{cores[0]},{cores[1]}"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=READ_TIMEOUT_S,
        )
        if done.returncode == 0:
            return float(done.stdout)
        reason = done.stderr.strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        reason = str(error)
    raise HarpError(
        f"The round trip between cores {cores[0]} and {cores[1]} can't be measured: {reason}",
        "Name other cores, or leave out --cores.",
    )


def near_cores(
    available: Sequence[int],
    count: int,
    read_ns: Callable[[int, int], float],
    siblings: Callable[[int], set[int]],
) -> tuple[int, ...]:
    """Return at most `count` cores: the first, the one nearest to it that is no thread of it, then others."""
    if len(available) < 2:
        raise HarpError("Two ranks take two cores; this process may use one.", exit_code=ExitCode.MISSING)
    first, *others = available
    apart = [core for core in others if core not in siblings(first)] or others
    near = min(apart[:NEAR_CANDIDATES_MAX], key=lambda core: read_ns(first, core))
    rest = [core for core in apart if core != near]
    return (first, near, *rest)[:count]


def core_siblings(core: int) -> set[int]:
    """Return the cores that are threads of the same physical core, itself among them."""
    try:
        words = Path(SIBLINGS.format(core)).read_text(encoding="ascii").strip().split(",")
        ends = [[int(end) for end in word.split("-")] for word in words]
    except (OSError, ValueError):
        return {core}
    return {one for end in ends for one in range(end[0], end[-1] + 1)}


def available_cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def parse_cores(text: str, available: Sequence[int]) -> tuple[int, ...]:
    """Read a comma list of at least two cores, all of which this process may use."""
    words = [word.strip() for word in text.split(",")]
    cores = tuple(int(word) for word in words if word.isdecimal())
    if len(cores) < 2 or len(set(cores)) < len(words):
        message = f"--cores takes at least two different cores, not {text!r}."
        raise HarpError(message, "--cores 0,1", ExitCode.USAGE)
    for core in cores:
        if core not in available:
            raise HarpError(
                f"Core {core} is not available to this process.",
                f"Name cores of these: {','.join(map(str, available))}.",
                ExitCode.USAGE,
            )
    return cores


def pinned_words(cores: Sequence[int], rank: int) -> list[str]:
    """Return the words before a rank's command that keep it to its core; none without cores."""
    return ["taskset", "-c", str(cores[rank % len(cores)])] if cores else []
