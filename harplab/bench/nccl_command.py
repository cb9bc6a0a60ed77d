# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench nccl`: official NCCL without a GPU over HARP and over its own sockets, in turns."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from harpctl.command_line import command, json_option
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harplab.bench.cores import CoreFigures, available_cores
from harplab.bench.nccl_measure import (
    NcclJob,
    NcclMeasured,
    NcclPlace,
    NcclSide,
    alternate_sides,
    fold_runs,
    plugin_side,
    require_sizes,
    socket_sides,
)
from harplab.bench.nccl_report import nccl_document, nccl_notes, nccl_table
from harplab.bench.nccl_run import OPERATIONS, REDUCTIONS, TYPE_BYTES
from harplab.bench.nccl_wheel import NEWEST, VERSION, fetch_nccl, wheel_of
from harplab.bench.options import (
    PLUGIN,
    RUN_S,
    SOCKET,
    SOCKET_BEST,
    Amount,
    LocalPlace,
    SideOptions,
    find_program,
    namespaces_of,
    watch_of,
)
from harplab.bench.places import LabHosts
from harplab.bench.report import Output, show_progress
from harplab.bench.table import print_rows
from harplab.grouped import declare_option, group_options
from harplab.perf.baseline import cache_dir
from harplab.perf.hosts import Hosts
from harplab.perf.measure import setting_text
from harplab.perf.sizes import parse_sizes

PROGRAM = "harp-nccl"
DEFAULT_SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20)
RUNS = 5
_NCCL = "NCCL"

# Options of two commands.
SETTLE: dict[str, Any] = {
    "metavar": "S",
    "type": click.FloatRange(0),
    "heading": _NCCL,
    "help": "Send the largest size for so many seconds first: what connections learn is known then.",
}
NCCL_LIB: dict[str, Any] = {
    "metavar": "RELEASE|FILE",
    "heading": _NCCL,
    "help": "The release of NCCL, fetched from PyPI once, or a libnccl.so.2 of NVIDIA's wheels.",
}


@dataclasses.dataclass(frozen=True)
class NcclOptions(Amount):
    """Options of NCCL: which one, and its work."""

    op: str = declare_option(OPERATIONS[0], heading=_NCCL, help=f"The operation: {', '.join(OPERATIONS)}.")
    type_name: str = declare_option(
        "float", "--type", heading=_NCCL, help="The elements' type, as nccl-tests has it."
    )
    redop: str = declare_option(REDUCTIONS[0], heading=_NCCL, help=f"The reduction: {', '.join(REDUCTIONS)}.")
    settle_s: float = declare_option(0.0, "--settle", **SETTLE)
    nccl_lib: str = declare_option(NEWEST, **NCCL_LIB)

    def job(self, ranks: int) -> NcclJob:
        """Make the job. Raises HarpError for what NCCL does not have."""
        for what, word, known in (
            ("operation", self.op, OPERATIONS),
            ("type", self.type_name, tuple(TYPE_BYTES)),
            ("reduction", self.redop, REDUCTIONS),
        ):
            if word not in known:
                raise HarpError(f"{word!r} is no {what}.", f"One of {', '.join(known)}.", ExitCode.USAGE)
        job = NcclJob(
            op=self.op,
            type=self.type_name,
            redop=self.redop,
            ranks=ranks,
            time_s=self.time_s or RUN_S,
            settle_s=self.settle_s,
            check=self.check,
        )
        sizes = (
            parse_sizes(self.sizes)
            if self.sizes
            else tuple(size for size in DEFAULT_SIZES if size >= job.least_bytes())
        )
        job = dataclasses.replace(job, sizes_bytes=tuple(dict.fromkeys(sizes)))
        require_sizes(job)
        return job


def nccl_sides(options: SideOptions, folder: Path) -> list[NcclSide]:
    """Make both sides; the other one is NCCL's own sockets unless something else is chosen."""
    ours, theirs = options.variables()
    if options.plugin == SOCKET:
        sides = [dataclasses.replace(socket_sides(ours, best=False)[0], name="Socket (1)")]
    else:
        file = find_program(Path(options.plugin) if options.plugin else None, PLUGIN)
        name, network = (file.stem, "") if options.plugin else ("HARP", "HARP")
        sides = [plugin_side(name, file, folder / "1", ours, network)]
    if options.against in {None, SOCKET, SOCKET_BEST}:
        return [*sides, *socket_sides(theirs, best=options.against == SOCKET_BEST)]
    file = find_program(Path(options.against or ""), PLUGIN)
    name = file.stem if file.stem != sides[0].name else f"{file.stem} (2)"
    return [*sides, plugin_side(name, file, folder / "2", theirs, "")]


def choose_cores(ranks: int, rps_cores: int, available: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
    """Choose a core for each rank; a note where ranks have to share one."""
    if rps_cores > 1:  # the core before is the one that handles what arrives at the host
        return tuple((rank + 1) % rps_cores for rank in range(ranks)), []
    cores = tuple(available[rank % len(available)] for rank in range(ranks))
    if len(available) >= ranks:
        return cores, []
    return cores, [f"{ranks} ranks share {len(available)} core(s): their times hold what they wait for those"]


@dataclasses.dataclass(frozen=True)
class NcclProgram:
    """harp-nccl, and the library that it runs."""

    file: Path
    library: Path

    @classmethod
    def find(cls, nccl_lib: str) -> NcclProgram:
        """Find both; fetch a release of NCCL the first time."""
        if platform.machine() != "x86_64":
            raise HarpError(
                f"harp-nccl needs an x86-64 machine; this one is {platform.machine()}.",
                "`harpctl bench` measures the plugin alone.",
                ExitCode.MISSING,
            )
        file = find_program(None, PROGRAM)
        if "/" in nccl_lib or not VERSION.match(nccl_lib):
            return cls(file, find_program(Path(nccl_lib), "libnccl.so.2"))
        return cls(file, fetch_nccl(wheel_of(nccl_lib), cache_dir()))


@dataclasses.dataclass(frozen=True)
class NcclOutcome:
    """A measurement: where, which sides, and what is to be said of it."""

    place: NcclPlace
    sides: list[NcclSide]
    measured: NcclMeasured
    cores: CoreFigures | None
    notes: list[str]


def measure_nccl(
    program: NcclProgram,
    hosts: Hosts,
    job: NcclJob,
    options: SideOptions,
    *,
    runs: int,
    pinned: Sequence[int],
    env: Mapping[str, str] | None = None,
) -> NcclOutcome:
    """Measure a job on both sides in turns, with variables that are of both unless a side has its own."""
    rps_cores = hosts.lab.spec.rps_cores if isinstance(hosts, LabHosts) else 0
    cores, notes = choose_cores(job.ranks, rps_cores, pinned or available_cores())
    variables = {**hosts.env(0), **(env or {})}
    place = NcclPlace(program.file, program.library, namespaces_of(hosts), cores, variables, hosts.packets)
    with tempfile.TemporaryDirectory(prefix="harp-nccl-") as folder:
        sides = nccl_sides(options, Path(folder))
        with show_progress(Console(stderr=True), len(sides) * runs) as step:
            watch = watch_of(tuple(pinned), len(sides) * runs)
            runs_by_side = alternate_sides(place, sides, job, runs, step, watch=watch)
    measured = fold_runs(sides, runs_by_side, job.sizes_bytes)
    given = zip(measured.names, options.variables(), strict=True)
    notes = [*watch.notes(), *notes, *(f"{name} with {setting_text(own)}" for name, own in given if own)]
    return NcclOutcome(place, sides, measured, watch.figures(), notes)


@command("nccl")
@group_options(options=NcclOptions, sides=SideOptions, place=LocalPlace)
@json_option
def bench_nccl(*, options: NcclOptions, sides: SideOptions, place: LocalPlace, as_json: bool) -> None:
    """Measure official NCCL without a GPU, over HARP and over its own sockets in turns."""
    options.job(place.ranks)  # what is wrong is said before anything is fetched
    program, runs = NcclProgram.find(options.nccl_lib), options.runs or RUNS
    with place.open() as (hosts, where, notes):
        job = options.job(hosts.count())
        done = measure_nccl(program, hosts, job, sides, runs=runs, pinned=place.pinned())
    if as_json:
        print_json(
            nccl_document(where, options.nccl_lib, done.place, job, runs, done.sides, done.measured, done.cores)
        )
    else:
        about = nccl_notes(where, options.nccl_lib, job, runs, done.measured)
        print_rows(Console(), nccl_table(done.measured), [*about, *done.notes, *notes])
    Output(None, as_json).require_right(done.measured.wrong, "elements")
