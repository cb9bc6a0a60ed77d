"""Measuring: one or two sides over the same hosts, alternating A B A B, size by size.

One harp-perf run measures one size of one side, so that the two sides' runs of a size are neighbours in time
and the machine's own drift falls on both. What a run costs that moves nothing (start-up, connecting) is
measured once per side and taken off the machine time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from harpctl.compare import Ratio, Row, compare, cpu_s_per_gb, summarize, time_us
from harpctl.errors import HarpError
from harpctl.hosts import Hosts, Program
from harpctl.perf import Mode, PerfJob, PerfRun, Result, run_perf
from harpctl.sizes import format_size

STARTUP_ITERATIONS = 1


@dataclasses.dataclass(frozen=True)
class Side:
    """One of those measured: a name for the table, a program, the settings to choose the best of."""

    name: str
    program: Program
    settings: tuple[dict[str, str], ...] = ({},)


@dataclasses.dataclass
class SideRuns:
    """What one side gave for one size, run by run, and the setting it ran with."""

    results: list[Result]
    cpu: list[float | None]
    setting: dict[str, str]

    def row(self) -> Row:
        """Fold the runs into a row."""
        return summarize(self.results, self.cpu)


@dataclasses.dataclass(frozen=True)
class Measured:
    """All sizes of all sides, and the ratios when there are two."""

    names: tuple[str, ...]
    rows: tuple[tuple[Row, ...], ...]  # per side, per size
    settings: tuple[tuple[dict[str, str], ...], ...]  # per side, per size
    ratios: tuple[Ratio, ...]


Runner = Callable[[Hosts, Program, PerfJob], PerfRun]
Step = Callable[[str], None]


def steps_total(sides: Sequence[Side], sizes: Sequence[int], runs: int) -> int:
    """Count harp-perf runs, for the progress bar."""
    scans = sum(len(side.settings) * len(sizes) for side in sides if len(side.settings) > 1)
    return len(sides) + scans + len(sides) * len(sizes) * runs


def measure(
    hosts: Hosts, sides: Sequence[Side], job: PerfJob, runs: int, step: Step, run: Runner = run_perf
) -> Measured:
    """Measure every size: for each, all sides in turn, as often as there are runs."""
    startup = [_startup_s(hosts, side, job, step, run) for side in sides]
    rows: list[list[Row]] = [[] for _ in sides]
    settings: list[list[dict[str, str]]] = [[] for _ in sides]
    ratios = []
    for size in job.sizes_bytes:
        one = dataclasses.replace(job, sizes_bytes=(size,))
        taken = [SideRuns([], [], _best_setting(hosts, side, one, step, run)) for side in sides]
        for number in range(runs):
            for side, into, startup_s in zip(sides, taken, startup, strict=True):
                step(f"{format_size(size)} {side.name} {number + 1}/{runs}")
                done = run(hosts, _with_setting(side.program, into.setting), one)
                into.results.append(_only_result(done, size))
                into.cpu.append(cpu_s_per_gb(done, startup_s))
        for index, into in enumerate(taken):
            rows[index].append(into.row())
            settings[index].append(into.setting)
        if len(sides) == 2:
            a, b = taken
            by_time = job.mode == Mode.PINGPONG.value
            ratios.append(compare(a.results, b.results, a.row(), b.row(), by_time=by_time))
    return Measured(
        tuple(side.name for side in sides),
        tuple(tuple(side) for side in rows),
        tuple(tuple(side) for side in settings),
        tuple(ratios),
    )


def _with_setting(program: Program, setting: dict[str, str]) -> Program:
    return dataclasses.replace(program, env={**program.env, **setting})


def _only_result(done: PerfRun, size: int) -> Result:
    if [result.bytes for result in done.report.results] != [size]:
        raise HarpError(f"harp-perf was asked for messages of {size} bytes and reported something else.")
    return done.report.results[0]


def _startup_s(hosts: Hosts, side: Side, job: PerfJob, step: Step, run: Runner) -> float:
    step(f"start-up {side.name}")
    idle = dataclasses.replace(job, sizes_bytes=job.sizes_bytes[:1], iterations=STARTUP_ITERATIONS)
    return run(hosts, _with_setting(side.program, side.settings[0]), idle).cpu.busy_s


def _best_setting(hosts: Hosts, side: Side, job: PerfJob, step: Step, run: Runner) -> dict[str, str]:
    """Try each setting once for this size and keep the fastest; a side with one setting is not tried."""
    if len(side.settings) == 1:
        return side.settings[0]
    times = []
    for setting in side.settings:
        step(f"{format_size(job.sizes_bytes[0])} {side.name} trying {setting_text(setting)}")
        done = run(hosts, _with_setting(side.program, setting), job)
        times.append(time_us(_only_result(done, job.sizes_bytes[0])))
    return side.settings[times.index(min(times))]


def setting_text(setting: dict[str, str]) -> str:
    """Write a setting for a person."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "default"
