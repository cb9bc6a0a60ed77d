# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench --nccl`: official NCCL without a GPU over HARP and over its own sockets, in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from harpctl.console import Console
from harpctl.errors import ExitCode, HarpError
from harpctl.testbed.bench.baseline import cache_dir
from harpctl.testbed.bench.cores import OpenWatch, available_cores
from harpctl.testbed.bench.hosts import Hosts, LabHosts, LoopbackHosts
from harpctl.testbed.bench.measure import Step, setting_text
from harpctl.testbed.bench.nccl_measure import (
    NcclJob,
    NcclMeasured,
    NcclPlace,
    NcclSide,
    alternate,
    fold,
    plugin_side,
    require_sizes,
    socket_sides,
)
from harpctl.testbed.bench.nccl_report import nccl_document, nccl_notes, nccl_table
from harpctl.testbed.bench.nccl_run import OPERATIONS, REDUCTIONS, TYPE_BYTES
from harpctl.testbed.bench.nccl_wheel import fetch, wheel_of
from harpctl.testbed.bench.table import print_rows
from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.plan import LabSpec

PROGRAM = "harp-nccl"
DEFAULT_SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20)


@dataclasses.dataclass(frozen=True)
class NcclOptions:
    """The options of a run of real NCCL."""

    op: str
    type: str
    redop: str
    sizes_bytes: tuple[int, ...]  # empty: the default ones
    time_s: float
    iterations: int | None
    settle_s: float
    runs: int
    check: bool
    version: str
    algo: str | None
    proto: str | None
    library: Path | None
    plugin: Path | None  # None: NCCL's own sockets
    is_own: bool  # the plugin is HARP's
    env: Mapping[str, str]
    against: Path | None  # likewise
    against_env: Mapping[str, str]
    best: bool
    cores: tuple[int, ...]  # empty: those that the process may use

    def job(self, ranks: int) -> NcclJob:
        """Make the job. Raises HarpError for what NCCL does not have."""
        for what, word, known in (
            ("operation", self.op, OPERATIONS),
            ("type", self.type, tuple(TYPE_BYTES)),
            ("reduction", self.redop, REDUCTIONS),
        ):
            if word not in known:
                raise HarpError(f"{word!r} is no {what}.", f"One of {', '.join(known)}.", ExitCode.USAGE)
        job = NcclJob(
            op=self.op,
            type=self.type,
            redop=self.redop,
            ranks=ranks,
            time_s=self.time_s,
            iterations=self.iterations,
            settle_s=self.settle_s,
            check=self.check,
        )
        sizes = self.sizes_bytes or tuple(size for size in DEFAULT_SIZES if size >= job.least_bytes())
        job = dataclasses.replace(job, sizes_bytes=tuple(dict.fromkeys(sizes)))
        require_sizes(job)
        return job

    def variables(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the variables that the user set for each side."""
        chosen = {"NCCL_ALGO": self.algo, "NCCL_PROTO": self.proto}
        common = {name: value for name, value in chosen.items() if value}
        return {**common, **self.env}, {**common, **self.against_env}

    def sides(self, folder: Path) -> list[NcclSide]:
        """Make both sides."""
        ours, theirs = self.variables()
        sides = []
        if self.plugin is None:
            sides.append(dataclasses.replace(socket_sides(ours, best=False)[0], name="Socket (1)"))
        else:
            name, network = ("HARP", "HARP") if self.is_own else (self.plugin.stem, "")
            sides.append(plugin_side(name, self.plugin, folder / "1", ours, network))
        if self.against is None:
            return [*sides, *socket_sides(theirs, best=self.best)]
        if self.best:
            raise HarpError(
                "--against-best is for `--against socket`.", "Add --against socket.", ExitCode.USAGE
            )
        name = self.against.stem if self.against.stem != sides[0].name else f"{self.against.stem} (2)"
        return [*sides, plugin_side(name, self.against, folder / "2", theirs, "")]


def choose_cores(ranks: int, rps_cores: int, available: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
    """Choose a core for each rank; a note where ranks have to share one."""
    if rps_cores > 1:  # the core before is the one that handles what arrives at the host
        return tuple((rank + 1) % rps_cores for rank in range(ranks)), []
    cores = tuple(available[rank % len(available)] for rank in range(ranks))
    if len(available) >= ranks:
        return cores, []
    return cores, [f"{ranks} ranks share {len(available)} core(s): their times hold what they wait for those"]


@contextlib.contextmanager
def open_place(spec: LabSpec, *, loopback: bool) -> Iterator[tuple[Hosts, tuple[str, ...], str, list[str]]]:
    """Open the lab, or loopback where it is requested, or where this machine can't have a plain lab."""
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        if not loopback:
            try:
                lab = stack.enter_context(Lab(spec))
            except HarpError as error:
                if spec != LabSpec(hosts=spec.hosts):
                    raise
                notes.append(f"no lab, so over loopback: {error.message}")
            else:
                yield LabHosts(lab), tuple(lab.hosts), f"lab: {spec.describe()}", lab.notes
                return
        where = f"{spec.hosts} processes over the loopback interface"
        yield LoopbackHosts(spec.hosts), (), where, notes


Progress = Callable[[int], AbstractContextManager[Step]]


def run_nccl_bench(
    options: NcclOptions,
    spec: LabSpec,
    program: Path,
    *,
    loopback: bool,
    progress: Progress,
    open_watch: OpenWatch,
) -> tuple[NcclMeasured, bytes, list[str]]:
    """Measure all sides in turn; return what was measured, the JSON, and the notes."""
    job = options.job(spec.hosts)
    if options.library:
        library, version = options.library, str(options.library)
    else:
        library, version = fetch(wheel_of(options.version), cache_dir()), options.version
    cores, core_notes = choose_cores(spec.hosts, spec.rps_cores, options.cores or available_cores())
    with (
        tempfile.TemporaryDirectory(prefix="harp-nccl-") as folder,
        open_place(spec, loopback=loopback) as (hosts, namespaces, where, notes),
    ):
        sides = options.sides(Path(folder))
        place = NcclPlace(program, library, namespaces, cores, hosts.env(0), hosts.packets)
        with progress(len(sides) * options.runs) as step:
            watch = open_watch(len(sides) * options.runs)
            runs_by_side = alternate(place, sides, job, options.runs, step, watch=watch)
    measured = fold(sides, runs_by_side, job.sizes_bytes)
    document = nccl_document(where, version, place, job, options.runs, sides, measured, watch.figures())
    given = zip(measured.names, options.variables(), strict=True)
    variables = [f"{name} with {setting_text(env)}" for name, env in given if env]
    about = nccl_notes(where, version, job, options.runs, measured)
    return measured, document, [*about, *watch.notes(), *notes, *core_notes, *variables]


def print_nccl(measured: NcclMeasured, notes: Sequence[str]) -> None:
    """Print the table and the notes."""
    print_rows(Console(), nccl_table(measured), notes)


def require_right(measured: NcclMeasured) -> None:
    """Raise HarpError for wrong data."""
    wrong = sum(row.wrong or 0 for rows in measured.rows for row in rows)
    if wrong:
        raise HarpError(f"{wrong} elements are wrong.", exit_code=ExitCode.WRONG_DATA)
