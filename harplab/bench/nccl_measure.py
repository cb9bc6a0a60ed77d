# SPDX-License-Identifier: Apache-2.0
"""Real NCCL over several nets in turns: the sides, their runs A B B A, medians and ratios.

A run goes through all sizes, since making NCCL's communicators takes a second. The runs of all sides
alternate, so that run i of one is the neighbour of run i of the other, and the machine's drift falls on both.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError
from harpctl.units import short_size
from harplab.bench.cores import UNWATCHED, Watch
from harplab.bench.nccl_run import DIVIDED, TYPE_BYTES, WRONG_DATA, NcclRun, Size, run_nccl
from harplab.bench.nccl_wheel import BEST_OF
from harplab.perf.compare import Ratio, relate_runs
from harplab.perf.counts import PacketCounts, lost_share, packets_since
from harplab.perf.measure import Step, in_turn, setting_text

SOCKET = "Socket"  # also NCCL's name for it
PLUGIN_SUFFIX = "side"  # NCCL looks for libnccl-net-side.so
START_S = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class NcclJob:
    """The work of every side."""

    op: str = "allreduce"
    type: str = "float"
    redop: str = "sum"
    sizes_bytes: tuple[int, ...] = ()
    ranks: int = 2
    time_s: float = 1.0
    iterations: int | None = None
    settle_s: float = 0.0  # the largest size for so long first
    check: bool = True
    nap_us: int = 0  # its threads sleep so long where they poll in vain, for networks that are slow beside it

    def least_bytes(self) -> int:
        """Return the smallest size that has an element for every rank."""
        return TYPE_BYTES[self.type] * (self.ranks if self.op in DIVIDED else 1)

    def options(self) -> list[str]:
        """Write harp-nccl's options."""
        amount = f"--iters={self.iterations}" if self.iterations is not None else f"--time={self.time_s:g}"
        words = [f"--op={self.op}", f"--type={self.type}", f"--redop={self.redop}", f"--ranks={self.ranks}"]
        words += [amount, f"--sizes={','.join(str(size) for size in self.sizes_bytes)}"]
        if self.settle_s:
            words.append(f"--settle={self.settle_s:g}")
        if self.nap_us:
            words.append(f"--nap={self.nap_us}")
        return [*words, "--check"] if self.check else words

    def timeout_s(self) -> float:
        """Bound a run: the time that it was set to take, and generous start-up and calibration."""
        per_size_s = 60.0 if self.iterations is not None else self.time_s * 4 + 10.0
        return START_S + self.settle_s + per_size_s * len(self.sizes_bytes)


@dataclasses.dataclass(frozen=True)
class NcclSide:
    """One of those measured: a name for the table, the variables that put NCCL on its net.

    `network` is what NCCL has to log as used; empty: anything but its own sockets.
    """

    name: str
    env: Mapping[str, str]
    network: str = ""
    setting: str = ""


@dataclasses.dataclass(frozen=True)
class NcclPlace:
    """The place of the ranks: harp-nccl, NCCL, the namespaces (none: loopback), interfaces, and cores."""

    program: Path
    library: Path
    namespaces: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    packets: Callable[[], PacketCounts | None] = lambda: None

    def options(self) -> list[str]:
        """Write harp-nccl's options."""
        words = [f"--netns={','.join(self.namespaces)}"] if self.namespaces else []
        return [*words, f"--cores={','.join(map(str, self.cores))}"] if self.cores else words


@dataclasses.dataclass(frozen=True)
class NcclRow:
    """One size of one side: medians over its runs; wrong elements are added up."""

    bytes: int
    count: int
    type: str
    redop: str
    time_us: float
    time_min_us: float
    time_max_us: float
    algbw_gbps: float
    busbw_gbps: float
    wrong: int | None
    setting: str  # the setting of the side, for this size


@dataclasses.dataclass(frozen=True)
class NcclMeasured:
    """All sizes of the sides; the ratios where there are two."""

    names: tuple[str, ...]
    rows: tuple[tuple[NcclRow, ...], ...]
    ratios: tuple[Ratio, ...]  # the ratios of times
    lost_shares: tuple[float | None, ...]  # the share of each side's packets that the network lost in all its runs

    @property
    def wrong(self) -> int:
        """Return the wrong elements of all rows."""
        return sum(row.wrong or 0 for rows in self.rows for row in rows)


Runs = dict[int, Size]  # the sizes of one side and run


@dataclasses.dataclass(frozen=True)
class SideRuns:
    """The runs of one side, and the packets of each."""

    runs: list[Runs] = dataclasses.field(default_factory=list)
    packets: list[PacketCounts | None] = dataclasses.field(default_factory=list)


Runner = Callable[[Path, Path, Sequence[str], Mapping[str, str], float], NcclRun]


def plugin_side(name: str, plugin: Path, folder: Path, env: Mapping[str, str], network: str) -> NcclSide:
    """Make a side of a plugin's file: NCCL of any release finds it by a name of our own in that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / f"libnccl-net-{PLUGIN_SUFFIX}.so"
    link.symlink_to(plugin.resolve())
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    own = {"LD_LIBRARY_PATH": ":".join(paths), "NCCL_NET_PLUGIN": PLUGIN_SUFFIX}
    return NcclSide(name, {**own, **({"NCCL_NET": network} if network else {}), **env}, network)


def socket_sides(env: Mapping[str, str], *, best: bool) -> list[NcclSide]:
    """Make the sides of NCCL's own sockets: as a job gets them that sets nothing, or with each setting."""
    own = {"NCCL_NET_PLUGIN": "none", "NCCL_NET": SOCKET}
    return [
        NcclSide(SOCKET, {**own, **setting, **env}, SOCKET, setting_text(setting) if setting else "")
        for setting in (BEST_OF if best else ({},))
    ]


def run_side(place: NcclPlace, side: NcclSide, job: NcclJob, run: Runner = run_nccl) -> Runs:
    """Run a side once. Raises HarpError if NCCL failed, or did not use the side's network."""
    environment = {**place.env, **side.env}
    options = [*job.options(), *place.options()]
    done = run(place.program, place.library, options, environment, job.timeout_s())
    sizes = {size.bytes: size for size in done.sizes}
    if done.code not in (0, WRONG_DATA) or set(sizes) != set(job.sizes_bytes):
        raise HarpError(f"NCCL over {side.name} failed (exit code {done.code}).", "\n  ".join(done.last_lines()))
    used = done.networks
    if (side.network and used != {side.network}) or (not side.network and SOCKET in used):
        raise HarpError(
            f"NCCL did not use {side.name}, but {', '.join(sorted(used)) or 'nothing that it named'}.",
            "\n  ".join(done.last_lines()),
        )
    return sizes


def alternate_sides(
    place: NcclPlace,
    sides: Sequence[NcclSide],
    job: NcclJob,
    runs: int,
    step: Step,
    run: Runner = run_nccl,
    watch: Watch = UNWATCHED,
) -> list[SideRuns]:
    """Run all sides in turn, that many times; return each side's runs. The watch may make one again."""
    runs_by_side = [SideRuns() for _ in sides]
    for number in range(runs):
        for side, into in in_turn(list(zip(sides, runs_by_side, strict=True)), number):
            step(f"{side.name} {side.setting} {number + 1}/{runs}".replace("  ", " "))
            before = place.packets()
            into.runs.append(watch.take(functools.partial(run_side, place, side, job, run), _is_wrong))
            into.packets.append(packets_since(before, place.packets()))
    return runs_by_side


def _is_wrong(run: Runs) -> bool:
    return any(size.wrong for size in run.values())


def row_of(side: NcclSide, runs: Sequence[Runs], size_bytes: int) -> NcclRow:
    """Fold a side's runs of one size into a row."""
    results = [run[size_bytes] for run in runs]
    times = [result.time_us for result in results]
    counted = [result.wrong for result in results if result.wrong is not None]
    return NcclRow(
        bytes=size_bytes,
        count=results[0].count,
        type=results[0].type,
        redop=results[0].redop,
        time_us=statistics.median(times),
        time_min_us=min(times),
        time_max_us=max(times),
        algbw_gbps=statistics.median(result.algbw_gbps for result in results),
        busbw_gbps=statistics.median(result.busbw_gbps for result in results),
        wrong=sum(counted) if counted else None,
        setting=side.setting,
    )


def fold_runs(sides: Sequence[NcclSide], runs_by_side: Sequence[SideRuns], sizes: Sequence[int]) -> NcclMeasured:
    """Make the rows of all sides. Those of one name are one side's settings: the best one for each size."""
    names = tuple(dict.fromkeys(side.name for side in sides))
    rows: list[list[NcclRow]] = [[] for _ in names]
    ratios = []
    for size in sizes:
        best = []
        for name, into in zip(names, rows, strict=True):
            candidates = [
                (row_of(side, taken.runs, size), taken.runs)
                for side, taken in zip(sides, runs_by_side, strict=True)
                if side.name == name
            ]
            row, runs = min(candidates, key=lambda candidate: candidate[0].time_us)
            into.append(row)
            best.append(runs)
        if len(best) == 2:
            ours, theirs = ([run[size].time_us for run in runs] for runs in best)
            ratios.append(relate_runs(size, ours, theirs))
    lost = []
    for name in names:
        of_name = [taken for side, taken in zip(sides, runs_by_side, strict=True) if side.name == name]
        lost.append(lost_share([one for taken in of_name for one in taken.packets]))
    return NcclMeasured(names, tuple(tuple(into) for into in rows), tuple(ratios), tuple(lost))


def require_sizes(job: NcclJob) -> None:
    """Raise HarpError for a size without an element for some rank."""
    for size in job.sizes_bytes:
        if size < job.least_bytes():
            raise HarpError(
                f"{size} bytes are too few: {job.op} of {job.type} over {job.ranks} ranks takes "
                f"{job.least_bytes()} at least.",
                f"--sizes {short_size(job.least_bytes())}",
                ExitCode.USAGE,
            )
