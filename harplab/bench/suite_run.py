# SPDX-License-Identifier: Apache-2.0
"""Measures the works of `harpctl lab suite`: HARP and the other side in turns, in the work's own lab."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from harpctl.errors import ExitCode, HarpError
from harplab.bench.cores import UNWATCHED, Watch
from harplab.bench.failover import TimedRun
from harplab.bench.failure import parse_failure
from harplab.bench.nccl_command import choose_cores
from harplab.bench.nccl_measure import (
    NcclJob,
    NcclMeasured,
    NcclPlace,
    alternate_sides,
    fold_runs,
    plugin_side,
    socket_sides,
)
from harplab.bench.nccl_report import geometric_mean
from harplab.bench.places import LabHosts
from harplab.bench.suite import FailureWork, NcclWork, PerfWork, Target, Work, size_text
from harplab.bench.timed import Opened, make_timed_runs, timed_job
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from harplab.perf.compare import divide
from harplab.perf.hosts import Hosts, Program
from harplab.perf.job import Mode, PerfJob
from harplab.perf.measure import START_UPS, Measured, Side, Step, measure_sides, steps_total

SOCKET = "Socket"


class SizeFigures(msgspec.Struct, frozen=True):
    """One size of real NCCL: the medians of the times, the speed-up, and that of pairs of runs."""

    bytes: int
    ours_us: float
    theirs_us: float
    speedup: float
    low: float
    high: float


class SuiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row: medians of both sides, and how much faster HARP is.

    `low` and `high` are the speed-ups of single pairs of runs; of real NCCL, where `speedup` is the geometric
    mean over the sizes, they are those of the slowest and the fastest size.
    """

    group: str
    name: str
    target: Target
    unit: str = ""  # the unit of both medians
    ours: float | None = None
    theirs: float | None = None  # None: that side did not go on
    beside: str = SOCKET
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    cpu: float | None = None  # HARP's CPU for a byte over the other side's
    kept: float | None = None  # the share of HARP's rate that is left after a failure
    sizes: list[SizeFigures] = []
    runs: int
    time: str

    @property
    def id(self) -> str:
        """Return the row's name in the suite, as row_id does."""
        return f"{self.group}: {self.name}"


OpenPlace = Callable[[LabSpec], AbstractContextManager[tuple[Hosts, tuple[str, ...]]]]


@dataclasses.dataclass(frozen=True)
class Effort:
    """Durations and numbers of measurements: as the works say, or short and once."""

    is_quick: bool = False

    def runs(self, runs: int) -> int:
        """Return the number of runs of each side."""
        return 1 if self.is_quick else runs

    def time_s(self, time_s: float) -> float:
        """Return the time of one size of one run."""
        return min(time_s, 0.05) if self.is_quick else time_s

    def settle_s(self, settle_s: float) -> float:
        """Return for how long the largest size is sent first."""
        return min(settle_s, 0.5) if self.is_quick else settle_s

    def start_ups(self) -> int:
        """Return how often the start-up of each side is measured."""
        return 2 if self.is_quick else START_UPS


@dataclasses.dataclass(frozen=True)
class Bench:
    """The means of measuring: programs, both plugins, NCCL, cores, and where hosts come from."""

    harp: Program
    socket: Program  # NCCL's own transport as a plugin
    nccl_program: Path | None  # None: real NCCL is left out
    nccl_library: Path
    cores: tuple[int, ...]
    open_place: OpenPlace
    effort: Effort = Effort()
    watch: Watch = UNWATCHED

    def harp_side(self, driver: str | None = None) -> Side:
        """Return the side of HARP with its defaults, or with a driver."""
        if driver is None:
            return Side("HARP", self.harp)
        env = {**self.harp.env, "HARP_DRIVER": driver}
        return Side(driver, dataclasses.replace(self.harp, env=env))

    def other_sides(self, drivers: Sequence[str]) -> list[Side]:
        """Return what HARP is measured beside: NCCL's sockets, or its own drivers."""
        return [self.harp_side(driver) for driver in drivers] or [Side(SOCKET, self.socket)]


def lab_opener(cores: Sequence[int]) -> OpenPlace:
    """Return what opens a lab whose ranks keep to these cores."""

    @contextlib.contextmanager
    def open_lab(spec: LabSpec) -> Iterator[tuple[Hosts, tuple[str, ...]]]:
        with Lab(spec) as lab:
            yield LabHosts(lab, cores), tuple(lab.hosts)

    return open_lab


def run_work(bench: Bench, work: Work, names: Sequence[str], step: Step) -> list[SuiteRow]:
    """Measure these rows of a work. Raises HarpError if a side failed, or data was wrong.

    Runs over capped links are not watched: there the network is the limit, not the distance of cores.
    """
    if work.lab.is_capped:
        bench = dataclasses.replace(bench, watch=UNWATCHED)
    if isinstance(work, PerfWork):
        return _run_perf(bench, work, names, step)
    if isinstance(work, NcclWork):
        return [_run_nccl(bench, work, step)]
    return [_run_failure(bench, work, step)]


def steps_of(bench: Bench, work: Work, names: Sequence[str]) -> int:
    """Count the runs, for the progress bar."""
    runs = bench.effort.runs(work.runs)
    if not isinstance(work, PerfWork):
        return 2 * runs
    job = _perf_job(bench, work, names)
    others = bench.other_sides(work.drivers)
    start_ups = bench.effort.start_ups()
    return sum(steps_total([bench.harp_side(), other], job, runs, start_ups) for other in others)


def watched_runs(bench: Bench, work: Work, names: Sequence[str]) -> int:
    """Count the runs that the watch takes."""
    if isinstance(work, FailureWork) or work.lab.is_capped:
        return 0
    runs = 2 * bench.effort.runs(work.runs)
    return runs * len(names) * max(len(work.drivers), 1) if isinstance(work, PerfWork) else runs


# ---- harp-perf ----


def _perf_job(bench: Bench, work: PerfWork, names: Sequence[str]) -> PerfJob:
    sized = zip(work.rows(), work.targets, strict=True)
    return PerfJob(
        mode=work.mode.value,
        sizes_bytes=tuple(size for name, (size, _target) in sized if name in names),
        connections=work.connections,
        inflight=work.inflight,
        check=False,
        time_s=bench.effort.time_s(work.time_s),
    )


def _run_perf(bench: Bench, work: PerfWork, names: Sequence[str], step: Step) -> list[SuiteRow]:
    job, runs = _perf_job(bench, work, names), bench.effort.runs(work.runs)
    with bench.open_place(work.lab) as (hosts, _namespaces):
        measured = [
            measure_sides(
                hosts,
                [bench.harp_side(), other],
                job,
                runs,
                step,
                take=bench.watch.take,
                start_ups=bench.effort.start_ups(),
            )
            for other in bench.other_sides(work.drivers)
        ]
    found = {}
    for number, size in enumerate(job.sizes_bytes):
        rows = [_perf_row(work, size, each, number, runs) for each in measured]
        found[size] = min(rows, key=lambda row: row.speedup or 0.0)  # beside the best of the others
    return [found[size] for size in job.sizes_bytes]


def _perf_row(work: PerfWork, size: int, measured: Measured, number: int, runs: int) -> SuiteRow:
    ours, theirs = (rows[number] for rows in measured.rows)
    ratio = measured.ratios[number]
    by_time = work.mode is Mode.PINGPONG
    speedups = (ratio.of_medians, ratio.least, ratio.greatest)
    if by_time:
        speedups = (1 / ratio.of_medians, 1 / ratio.greatest, 1 / ratio.least)
    speedup, low, high = speedups
    name = f"{work.name}, {size_text(size)}"
    return SuiteRow(
        group=work.group,
        name=name,
        target=dict(work.targets)[size],
        unit="µs" if by_time else "Gbit/s",
        ours=ours.time_us if by_time else ours.busbw_gbps,
        theirs=theirs.time_us if by_time else theirs.busbw_gbps,
        beside=measured.names[1],
        speedup=speedup,
        low=low,
        high=high,
        cpu=ratio.cpu or None,  # 0: a run too short to tell from its start-up
        runs=runs,
        time=_time_now(),
    )


# ---- real NCCL ----


def _run_nccl(bench: Bench, work: NcclWork, step: Step) -> SuiteRow:
    if bench.nccl_program is None:
        raise HarpError("Real NCCL runs on x86-64 only.", exit_code=ExitCode.FAILED)
    effort = bench.effort
    runs = effort.runs(work.runs)
    job = NcclJob(
        op=work.op,
        sizes_bytes=work.sizes_bytes,
        ranks=work.lab.hosts,
        time_s=effort.time_s(work.time_s),
        settle_s=effort.settle_s(work.settle_s),
    )
    cores, _notes = choose_cores(work.lab.hosts, 0, bench.cores)
    with (
        tempfile.TemporaryDirectory(prefix="harp-nccl-") as folder,
        bench.open_place(work.lab) as (hosts, namespaces),
    ):
        place = NcclPlace(bench.nccl_program, bench.nccl_library, namespaces, cores, hosts.env(0))
        harp = plugin_side("HARP", bench.harp.plugin, Path(folder), {**bench.harp.env, **work.env}, "HARP")
        sides = [harp, *socket_sides({}, best=False)]
        measured = fold_runs(
            sides, alternate_sides(place, sides, job, runs, step, watch=bench.watch), work.sizes_bytes
        )
    wrong = sum(row.wrong or 0 for rows in measured.rows for row in rows)
    if wrong:
        raise HarpError(f"{work.group}: {work.name}: {wrong} elements are wrong.", "", ExitCode.WRONG_DATA)
    return _nccl_row(work, measured, runs)


def _nccl_row(work: NcclWork, measured: NcclMeasured, runs: int) -> SuiteRow:
    ours, theirs = measured.rows
    sizes = [
        SizeFigures(
            bytes=ratio.bytes,
            ours_us=our.time_us,
            theirs_us=their.time_us,
            speedup=divide(1, ratio.of_medians),
            low=divide(1, ratio.greatest),
            high=divide(1, ratio.least),
        )
        for our, their, ratio in zip(ours, theirs, measured.ratios, strict=True)
    ]
    return SuiteRow(
        group=work.group,
        name=work.name,
        target=work.target,
        speedup=1 / geometric_mean(measured),
        low=min(size.speedup for size in sizes),
        high=max(size.speedup for size in sizes),
        sizes=sizes,
        runs=runs,
        time=_time_now(),
    )


# ---- failures ----


def _run_failure(bench: Bench, work: FailureWork, step: Step) -> SuiteRow:
    runs = bench.effort.runs(work.runs)
    job = PerfJob(Mode.STREAM.value, (work.size_bytes,), inflight=work.inflight, check=False)
    what = timed_job(job, work.seconds, [parse_failure(work.failure, work.lab)], beside_tcp=False)

    @contextlib.contextmanager
    def open_hosts() -> Iterator[Opened]:
        with bench.open_place(work.lab) as (hosts, _namespaces):
            yield hosts, "", []

    sides = [bench.harp_side(), Side(SOCKET, bench.socket)]
    done = [make_timed_runs(sides, what, open_hosts, step)[0] for _ in range(runs)]
    ours, theirs = ([pair[side] for pair in done] for side in (0, 1))
    failed = [failure for run in ours for failure in run.failures]
    if failed or not all(run.ended_well for run in ours):
        raise HarpError(f"{work.name}: HARP failed.", "\n  ".join(failed))
    their_pauses = [pause for run in theirs if (pause := _pause_ms(run)) is not None]
    return SuiteRow(
        group=work.group,
        name=work.name,
        target=work.target,
        unit="ms",
        ours=statistics.median(_pause_ms(run) or 0.0 for run in ours),
        theirs=statistics.median(their_pauses) if their_pauses else None,
        kept=statistics.median(map(_kept_share, ours)),
        runs=runs,
        time=_time_now(),
    )


def _pause_ms(run: TimedRun) -> float | None:
    """Return the longest time without a byte since the failure; None where nothing came any more."""
    last = run.phases[-1]
    return last.stall_ms if last.rate_gbps > 0 and not run.failures else None


def _kept_share(run: TimedRun) -> float:
    return divide(run.phases[-1].rate_gbps, run.phases[0].rate_gbps)


def _time_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
