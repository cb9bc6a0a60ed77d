# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench nccl`: official NCCL without a GPU over HARP and over its own sockets, in turns."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from harpctl.command_line import command, json_option
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.perf.baseline import cache_dir
from harpctl.perf.measure import setting_text
from harpctl.perf.sizes import parse_sizes
from harplab.bench.cores import available_cores
from harplab.bench.nccl_measure import (
    NcclJob,
    NcclPlace,
    NcclSide,
    alternate,
    fold,
    plugin_side,
    require_sizes,
    socket_sides,
)
from harplab.bench.nccl_report import nccl_document, nccl_notes, nccl_table
from harplab.bench.nccl_run import OPERATIONS, REDUCTIONS, TYPE_BYTES
from harplab.bench.nccl_wheel import NEWEST, VERSION, fetch, wheel_of
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
from harplab.bench.report import Output, progress
from harplab.bench.table import print_rows
from harplab.grouped import declared, grouped

PROGRAM = "harp-nccl"
DEFAULT_SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20)
RUNS = 5
_NCCL = "NCCL"


@dataclasses.dataclass(frozen=True)
class NcclOptions(Amount):
    """What NCCL does, and which NCCL."""

    op: str = declared(OPERATIONS[0], heading=_NCCL, help=f"The operation: {', '.join(OPERATIONS)}.")
    type_name: str = declared(
        "float", "--type", heading=_NCCL, help="The elements' type, as nccl-tests has it."
    )
    redop: str = declared(REDUCTIONS[0], heading=_NCCL, help=f"The reduction: {', '.join(REDUCTIONS)}.")
    settle_s: float = declared(
        0.0,
        "--settle",
        metavar="S",
        type=click.FloatRange(0),
        heading=_NCCL,
        help="Send the largest size for so many seconds first: what connections learn is known then.",
    )
    nccl_lib: str = declared(
        NEWEST,
        metavar="RELEASE|FILE",
        heading=_NCCL,
        help="The release of NCCL, fetched from PyPI once, or a libnccl.so.2 of NVIDIA's wheels.",
    )

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

    def library(self) -> Path:
        """Return NCCL's library; fetch a release the first time."""
        if "/" in self.nccl_lib or not VERSION.match(self.nccl_lib):
            return find_program(Path(self.nccl_lib), "libnccl.so.2")
        return fetch(wheel_of(self.nccl_lib), cache_dir())


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


@command("nccl")
@grouped(options=NcclOptions, sides=SideOptions, place=LocalPlace)
@json_option
def bench_nccl(*, options: NcclOptions, sides: SideOptions, place: LocalPlace, as_json: bool) -> None:
    """Measure official NCCL without a GPU, over HARP and over its own sockets in turns."""
    if platform.machine() != "x86_64":
        raise HarpError(
            f"harp-nccl needs an x86-64 machine; this one is {platform.machine()}.",
            "`harpctl bench` measures the plugin alone.",
            ExitCode.MISSING,
        )
    options.job(place.ranks)  # what is wrong is said before anything is fetched
    program, library, pinned = find_program(None, PROGRAM), options.library(), place.pinned()
    with (
        tempfile.TemporaryDirectory(prefix="harp-nccl-") as folder,
        place.open() as (hosts, where, notes),
    ):
        job = options.job(hosts.count())
        both = nccl_sides(sides, Path(folder))
        rps_cores = hosts.lab.spec.rps_cores if isinstance(hosts, LabHosts) else 0
        cores, core_notes = choose_cores(job.ranks, rps_cores, pinned or available_cores())
        nccl_place = NcclPlace(program, library, namespaces_of(hosts), cores, hosts.env(0), hosts.packets)
        runs = options.runs or RUNS
        with progress(Console(stderr=True), len(both) * runs) as step:
            watch = watch_of(pinned, len(both) * runs)
            runs_by_side = alternate(nccl_place, both, job, runs, step, watch=watch)
    measured = fold(both, runs_by_side, job.sizes_bytes)
    if as_json:
        print_json(
            nccl_document(where, options.nccl_lib, nccl_place, job, runs, both, measured, watch.figures())
        )
    else:
        given = zip(measured.names, sides.variables(), strict=True)
        variables = [f"{name} with {setting_text(env)}" for name, env in given if env]
        about = nccl_notes(where, options.nccl_lib, job, runs, measured)
        about += [*watch.notes(), *notes, *core_notes, *variables]
        print_rows(Console(), nccl_table(measured), about)
    Output(None, as_json).require_right(
        sum(row.wrong or 0 for rows in measured.rows for row in rows), "elements"
    )
