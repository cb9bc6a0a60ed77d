# SPDX-License-Identifier: Apache-2.0
"""Measuring: one or two sides over the same hosts, alternating A B B A, size by size.

One harp-perf run measures one size of one side, so that the two sides' runs of a size are neighbours in time
and the machine's own drift falls on both; each is first as often as the other. A measured run sends a fixed
count of messages, found by a trial; the machine time holds the measured messages and a constant start-up,
which is taken off. Start-ups are measured in turns before all else, and each side's first is left out: it
reads files that nobody has read yet. Who watches the measured runs may have one made again.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

from harpctl.errors import HarpError
from harpctl.units import short_size
from harplab.perf.compare import Ratio, Row, compare_results, cpu_s_per_gb, summarize_results, time_us
from harplab.perf.counts import PacketCounts, lost_share, packets_since
from harplab.perf.hosts import Hosts, Program
from harplab.perf.job import Mode, PerfJob, PerfResult, PerfRun, run_perf

START_UPS = 4  # the start-ups of each side; the first one does not count
TRIALS = 2  # the trials of each setting; the faster one counts, since one may stall
TRIAL_SHARE = 0.25  # the share of the time that a measured run takes
TRIAL_MIN_S = 0.1  # shorter ones find counts that differ twofold
MIN_SECONDS = 1e-6


@dataclasses.dataclass(frozen=True)
class Side:
    """One of those measured: a name for the table, a program, the settings to choose the best of."""

    name: str
    program: Program
    settings: tuple[dict[str, str], ...] = ({},)


@dataclasses.dataclass
class SideRuns:
    """The results of one side for one size, run by run, and its setting."""

    setting: dict[str, str]
    checked: bool
    results: list[PerfResult] = dataclasses.field(default_factory=list)
    cpu: list[float | None] = dataclasses.field(default_factory=list)
    packets: list[PacketCounts | None] = dataclasses.field(default_factory=list)

    def row(self) -> Row:
        """Fold the runs into a row."""
        lost = lost_share(self.packets)
        return summarize_results(self.results, self.cpu, checked=self.checked, lost_share=lost)


@dataclasses.dataclass(frozen=True)
class Measured:
    """All sizes of all sides, and the ratios when there are two."""

    names: tuple[str, ...]
    rows: tuple[tuple[Row, ...], ...]  # per side, per size
    settings: tuple[tuple[dict[str, str], ...], ...]  # per side, per size
    ratios: tuple[Ratio, ...]


_Item = TypeVar("_Item")
Runner = Callable[[Hosts, Program, PerfJob], PerfRun]
Step = Callable[[str], None]
# Makes a run and returns it, or makes it again; the second function says whether its data is wrong.
Take = Callable[[Callable[[], PerfRun], Callable[[PerfRun], bool]], PerfRun]


def in_turn(items: Sequence[_Item], number: int) -> list[_Item]:
    """Return the items in the order of a round: every second one is reversed."""
    return list(items) if number % 2 == 0 else list(reversed(items))


def steps_total(sides: Sequence[Side], job: PerfJob, runs: int, start_ups: int = START_UPS) -> int:
    """Count harp-perf runs, for the progress bar."""
    trials = sum(_count_trials(side, job) for side in sides)
    return start_ups * len(sides) + len(job.sizes_bytes) * (trials + len(sides) * runs)


def _count_trials(side: Side, job: PerfJob) -> int:
    """Count the runs before the measured ones: they choose a setting and turn a time into a count."""
    return 0 if job.iterations is not None and len(side.settings) == 1 else TRIALS * len(side.settings)


class SideMeter:
    """Measures one side: knows what a run costs that moves nothing, and how many messages fill the time."""

    def __init__(self, hosts: Hosts, side: Side, job: PerfJob, step: Step, run: Runner) -> None:
        self.side = side
        self._hosts, self._job, self._step, self._run = hosts, job, step, run
        self._startups_s: list[float] = []
        self._messages_per_iteration = 1

    def start_up(self) -> None:
        """Measure once what a run costs that moves one message for each connection."""
        idle = dataclasses.replace(self._job, sizes_bytes=self._job.sizes_bytes[:1], iterations=1)
        self._step(f"start-up {self.side.name}")
        done = self._run_perf(idle, self.side.settings[0])
        self._startups_s.append(done.cpu.busy_s)
        self._messages_per_iteration = max(_only_result(done, idle).messages, 1)

    def prepare(self, size_bytes: int) -> tuple[PerfJob, dict[str, str]]:
        """Choose the setting and the message count for a size, by short runs of each setting."""
        job = dataclasses.replace(self._job, sizes_bytes=(size_bytes,))
        setting = self.side.settings[0]
        if not _count_trials(self.side, job):
            return job, setting
        trial = dataclasses.replace(job, time_s=max(job.time_s * TRIAL_SHARE, TRIAL_MIN_S))
        results = []
        for candidate in self.side.settings:
            tries = []
            for _ in range(TRIALS):
                self._step(f"{short_size(size_bytes)} {self.side.name} trying {setting_text(candidate)}")
                tries.append(_only_result(self._run_perf(trial, candidate), trial))
            results.append(min(tries, key=time_us))
        times = [time_us(result) for result in results]
        best = times.index(min(times))
        setting, result = self.side.settings[best], results[best]
        if job.iterations is None:
            done = result.messages / self._messages_per_iteration
            count = round(done * job.time_s / max(result.seconds, MIN_SECONDS))
            job = dataclasses.replace(job, iterations=max(count, 1))
        return job, setting

    def take(self, job: PerfJob, into: SideRuns, label: str, take: Take) -> None:
        """Measure once."""
        self._step(f"{short_size(job.sizes_bytes[0])} {self.side.name} {label}")
        before = self._hosts.packets()
        done = take(lambda: self._run_perf(job, into.setting), _is_wrong)
        into.packets.append(packets_since(before, self._hosts.packets()))
        into.results.append(_only_result(done, job))
        into.cpu.append(cpu_s_per_gb(done, statistics.median(self._startups_s[1:])))

    def _run_perf(self, job: PerfJob, setting: dict[str, str]) -> PerfRun:
        program = self.side.program
        return self._run(self._hosts, dataclasses.replace(program, env={**program.env, **setting}), job)


def measure_sides(
    hosts: Hosts,
    sides: Sequence[Side],
    job: PerfJob,
    runs: int,
    step: Step,
    run: Runner = run_perf,
    take: Take = lambda run, _is_wrong: run(),
    start_ups: int = START_UPS,
) -> Measured:
    """Measure every size: for each, all sides in turn, as often as there are runs.

    `start_ups` of each side are measured first, at least two.
    """
    meters = [SideMeter(hosts, side, job, step, run) for side in sides]
    for _ in range(start_ups):
        for meter in meters:
            meter.start_up()
    runs_by_side: list[list[SideRuns]] = [[] for _ in sides]
    for size in job.sizes_bytes:
        prepared = [meter.prepare(size) for meter in meters]
        row = [SideRuns(setting, job.check) for _, setting in prepared]
        for number in range(runs):
            sets = list(zip(meters, prepared, row, strict=True))
            for meter, (one, _), into in in_turn(sets, number):
                meter.take(one, into, f"{number + 1}/{runs}", take)
        for side, into in zip(runs_by_side, row, strict=True):
            side.append(into)
    by_time = job.mode == Mode.PINGPONG.value
    pairs = zip(*runs_by_side, strict=True) if len(sides) == 2 else ()
    return Measured(
        tuple(side.name for side in sides),
        tuple(tuple(into.row() for into in side) for side in runs_by_side),
        tuple(tuple(into.setting for into in side) for side in runs_by_side),
        tuple(compare_results(a.results, b.results, a.row(), b.row(), by_time=by_time) for a, b in pairs),
    )


def _is_wrong(done: PerfRun) -> bool:
    return any(result.wrong for result in done.report.results)


def _only_result(done: PerfRun, job: PerfJob) -> PerfResult:
    if tuple(result.bytes for result in done.report.results) != job.sizes_bytes:
        raise HarpError(f"harp-perf was asked for messages of {job.sizes_bytes[0]} bytes and reported others.")
    return done.report.results[0]


def setting_text(setting: dict[str, str]) -> str:
    """Write a setting for a person."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "default"
