# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench` and `harpctl lab bench`: harp-perf on hosts, with one side or two in turns."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from harpctl.command_line import Group, command, flag, json_option, option
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.hints import given_options
from harplab.bench.cores import available_cores, parse_cores
from harplab.bench.failover import print_timed_runs
from harplab.bench.failure import Failure, parse_failure
from harplab.bench.nccl_command import bench_nccl
from harplab.bench.options import (
    Place,
    SideOptions,
    Traffic,
    cores_option,
    plot_option,
    refuse_cores,
    variable_notes,
    watch_of,
)
from harplab.bench.places import LabHosts
from harplab.bench.plot import plot_sides, plot_timed_runs
from harplab.bench.report import Output, make_document, print_measured, show_progress
from harplab.bench.timed import Opened, OpenHosts, make_timed_runs, timed_document, timed_job
from harplab.grouped import group_options
from harplab.lab.lab import Lab
from harplab.lab.options import LAB, LabOptions
from harplab.lab.spec import LabSpec
from harplab.perf.measure import Side, measure_sides, steps_total
from harplab.plotting import require_plot

RUNS_ALONE = 1
RUNS_AGAINST = 5
BY_CLOCK = "a run by the clock"
_CLOCK = "Timed run"


@dataclasses.dataclass(frozen=True)
class _Clock:
    """The faults and pictures of a timed run."""

    failures: tuple[Failure, ...] = ()
    beside_tcp: bool = False


def _run_traffic(
    traffic: Traffic,
    sides: Sequence[Side],
    open_hosts: OpenHosts,
    cores: tuple[int, ...],
    output: Output,
    clock: _Clock | None,
) -> None:
    """Measure each size as often as requested, or one size by the clock; print, and draw."""
    if output.plot:
        require_plot(output.plot)
    job = traffic.job(by_clock=clock is not None)
    if clock is not None:
        _run_by_clock(traffic, sides, clock, open_hosts, output)
        return
    runs = traffic.runs or (RUNS_ALONE if len(sides) == 1 else RUNS_AGAINST)
    with (
        open_hosts() as (where, place, notes),
        show_progress(Console(stderr=True), steps_total(sides, job, runs)) as step,
    ):
        watch = watch_of(cores, len(sides) * len(job.sizes_bytes) * runs)
        measured = measure_sides(where, sides, job, runs, step, take=watch.take)
    if output.as_json:
        print_json(make_document(place, job, runs, sides, measured, watch.figures()))
    else:
        about = [*watch.notes(), *notes, *variable_notes(sides)]
        print_measured(Console(), place, job, runs, measured, about)
    if output.plot:
        named = list(zip(measured.names, measured.rows, strict=True))
        plot_sides(output.plot, f"{job.mode}, {place}", job.mode, named)
    output.require_right(sum(row.wrong or 0 for rows in measured.rows for row in rows), "messages")


def _run_by_clock(
    traffic: Traffic, sides: Sequence[Side], clock: _Clock, open_hosts: OpenHosts, output: Output
) -> None:
    """Run each side once; an error if the first failed, after its figures."""
    what = timed_job(traffic.job(by_clock=True), traffic.time_s, clock.failures, beside_tcp=clock.beside_tcp)
    with show_progress(Console(stderr=True), len(sides)) as step:
        timed_runs, place, notes = make_timed_runs(sides, what, open_hosts, step)
    about = what.describe()
    if output.as_json:
        print_json(timed_document(place, what, sides, timed_runs))
    else:
        print_timed_runs(Console(), timed_runs, [place, about, *notes, *variable_notes(sides)])
    if output.plot:
        plot_timed_runs(output.plot, f"{about}\n{place}", timed_runs)
    output.require_right(timed_runs[0].wrong, "messages")
    if not timed_runs[0].ended_well:
        output.fail(HarpError(f"{timed_runs[0].name} failed.", "The notes of the run have the reason."))


@click.group(cls=Group, invoke_without_command=True)
@group_options(traffic=Traffic, sides=SideOptions, place=Place)
@plot_option
@json_option
def bench(
    *,
    traffic: Traffic,
    sides: SideOptions,
    place: Place,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Measure HARP, or any NCCL net plugin, without a GPU; beside another one with --against.

    Between two network namespaces, or hosts over ssh. `harpctl bench nccl` runs NCCL itself, `harpctl lab
    bench` has slow, lossy and failing networks.
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        if given_options(context):
            name = context.invoked_subcommand
            raise HarpError(f"Options stand behind `bench {name}`.", exit_code=ExitCode.USAGE)
        return
    refuse_cores(place.cores, {"--hosts": bool(place.hosts), BY_CLOCK: traffic.by_clock})
    clock = _Clock() if traffic.by_clock else None
    _run_traffic(traffic, sides.perf_sides(), place.open, place.pinned(), Output(plot_file, as_json), clock)


@command("bench")
@group_options(traffic=Traffic, sides=SideOptions, network=LabOptions)
@flag("--switch", heading=LAB, help="Join hosts by a switch, also where there are two.")
@option(
    "--fail",
    multiple=True,
    heading=_CLOCK,
    help="Make an ENI of the lab fail: [HOST/]eniN:KIND@AT[+FOR], in seconds; KIND is down, unplug, "
    "address, blackhole, silent-in, silent-out, drop=SHARE or cap=MBPS; repeatable.",
)
@flag("--beside-tcp", heading=_CLOCK, help="Run a flow of kernel TCP at the same time.")
@cores_option
@plot_option
@json_option
def lab_bench(
    *,
    traffic: Traffic,
    sides: SideOptions,
    network: LabOptions,
    switch: bool,
    fail: tuple[str, ...],
    beside_tcp: bool,
    cores: str | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Measure as `harpctl bench` does, in a lab of its own: capped, lossy, or failing meanwhile."""
    spec = network.spec(switch=switch)
    failures = tuple(parse_failure(text, spec) for text in fail)
    by_clock = traffic.by_clock or bool(failures) or beside_tcp
    refuse_cores(cores, {"--rps": network.rps, BY_CLOCK: by_clock})
    pinned = parse_cores(cores, available_cores()) if cores is not None else ()

    def open_hosts() -> contextlib.AbstractContextManager[Opened]:
        return _lab_hosts(spec, pinned)

    clock = _Clock(failures, beside_tcp) if by_clock else None
    _run_traffic(traffic, sides.perf_sides(), open_hosts, pinned, Output(plot_file, as_json), clock)


@contextlib.contextmanager
def _lab_hosts(spec: LabSpec, cores: Sequence[int]) -> Iterator[Opened]:
    with Lab(spec) as lab:
        yield LabHosts(lab, cores), f"lab: {spec.describe()}", lab.notes


bench.add_command(bench_nccl)
