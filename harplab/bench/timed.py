# SPDX-License-Identifier: Apache-2.0
"""Each side once by the clock, with what fails meanwhile and what runs beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from harpctl.errors import ExitCode, HarpError
from harpctl.units import short_size
from harplab.bench.failover import TimedRun, timed_run_of
from harplab.bench.failure import Event, Failure, apply_event, events_of
from harplab.bench.places import LabHosts
from harplab.bench.report import made_here
from harplab.bench.window import CompetingFlow, run_window
from harplab.lab.lab import Lab
from harplab.perf.hosts import Hosts
from harplab.perf.job import Mode, PerfJob
from harplab.perf.measure import Side, Step

SAMPLES_MAX = 20000  # harp-perf's bound
AFTER_S = 2.0  # after the last event, unless --time sets the end
DEFAULT_SIZE_BYTES = 128 << 10

Opened = tuple[Hosts, str, list[str]]  # a place, a line that describes it, notes
OpenHosts = Callable[[], AbstractContextManager[Opened]]


@dataclasses.dataclass(frozen=True)
class TimedJob:
    """A run by the clock."""

    job: PerfJob  # with an interval
    failures: tuple[Failure, ...]
    beside_tcp: bool

    def describe(self) -> str:
        """Return in one line what is run."""
        job = self.job
        checked = "every byte checked" if job.check else "data not checked"
        return (
            f"{job.mode} of {short_size(job.sizes_bytes[0])} messages for {job.time_s:g} s, "
            f"{job.connections} connection(s), {job.inflight} in flight, {checked}"
        )


def timed_job(job: PerfJob, time_s: float | None, failures: Sequence[Failure], *, beside_tcp: bool) -> TimedJob:
    """Complete a job by the length of the run and of its samples."""
    if len(job.sizes_bytes) != 1 or job.mode == Mode.PINGPONG.value:
        raise HarpError(
            "A run by the clock takes one size, and a mode that streams.",
            "--by-clock --time 10 --sizes 128K",
            ExitCode.USAGE,
        )
    last_s = max((failure.end_s() for failure in failures), default=0.0)
    length_s = last_s + AFTER_S if time_s is None else time_s
    if last_s >= length_s:
        raise HarpError(
            f"The last failure or repair is at {last_s:g} s, the run ends at {length_s:g} s.",
            f"--time {last_s + AFTER_S:g}",
            ExitCode.USAGE,
        )
    interval_ms = max(math.ceil(length_s * 1000 / SAMPLES_MAX), 1)
    job = dataclasses.replace(job, time_s=length_s, interval_ms=interval_ms)
    return TimedJob(job, tuple(failures), beside_tcp)


def make_timed_runs(
    sides: Sequence[Side], what: TimedJob, open_hosts: OpenHosts, step: Step
) -> tuple[list[TimedRun], str, list[str]]:
    """Run each side in a new place, so that none meets what another broke; return what the place was."""
    runs: list[TimedRun] = []
    places: list[tuple[str, list[str]]] = []
    for side in sides:
        step(side.name)
        with open_hosts() as (hosts, place, notes):
            runs.append(_run_side(side, what, hosts))
            places.append((place, notes))
    return runs, *places[0]


def _run_side(side: Side, what: TimedJob, hosts: Hosts) -> TimedRun:
    job = what.job
    lab = hosts.lab if isinstance(hosts, LabHosts) else None
    events = events_of(what.failures)
    competing_flow = _competing_flow(lab, job) if lab and what.beside_tcp else None

    def do(event: Event) -> None:
        if lab:
            apply_event(lab, event)

    window_result = run_window(hosts, side.program, job, events, do, competing_flow)
    return timed_run_of(side.name, window_result, job.time_s, (job.interval_ms or 1) / 1000)


def _competing_flow(lab: Lab, job: PerfJob) -> CompetingFlow:
    """Make a flow of TCP on the way that the messages take."""
    sender, receiver = (1, 0) if job.mode == Mode.INCAST.value else (0, len(lab.hosts) // 2)
    return CompetingFlow(lab, sender, receiver, job.interval_ms or 1)


def timed_document(
    place: str, what: TimedJob, sides: Sequence[Side], runs: Sequence[TimedRun]
) -> dict[str, object]:
    """Return everything: what was run, where, what happened, and each sample."""
    return {
        **made_here(place),
        "job": dataclasses.asdict(what.job),
        "failures": [dataclasses.asdict(failure) for failure in what.failures],
        "sides": [
            {
                "plugin": str(side.program.plugin),
                "env": dict(side.program.env),
                **dataclasses.asdict(run),
            }
            for side, run in zip(sides, runs, strict=True)
        ],
    }
