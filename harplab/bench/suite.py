# SPDX-License-Identifier: Apache-2.0
"""The rows of `harpctl lab suite`, as data: works of one or more rows, each with its lab, job and targets.

A speed-up is HARP's rate over that of NCCL's sockets, or their time over HARP's: above 1 HARP is faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from harpctl.units import short_size
from harplab.lab.spec import LabSpec, Offload
from harplab.perf.job import Mode

KIB, MIB = 1 << 10, 1 << 20
NCCL_SIZES = (8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 64 * MIB)
NCCL_SIZES_4_RANKS = (64, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB)
NCCL_SIZES_CAPPED = (MIB, 4 * MIB, 16 * MIB)
NCCL_OPERATIONS = ("allreduce", "alltoall", "sendrecv")


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of a row; None: nothing is demanded."""

    speedup: float | None = None  # at least
    slowest: float | None = None  # the speed-up of each size of real NCCL, at least
    cpu: float | None = None  # HARP's CPU for a byte over that of the other side, at most
    pause_ms: float | None = None  # after a failure, at most
    kept: float | None = None  # the share of the rate that is left after a failure, at least


@dataclasses.dataclass(frozen=True)
class PerfWork:
    """Messages of some sizes by harp-perf, a row each; beside NCCL's sockets or HARP's own drivers."""

    group: str
    name: str
    targets: tuple[tuple[int, Target], ...]  # the targets of each message size
    mode: Mode = Mode.STREAM
    connections: int = 1
    inflight: int = 8
    lab: LabSpec = dataclasses.field(default_factory=LabSpec)
    drivers: tuple[str, ...] = ()  # beside HARP with the best of these, instead of NCCL's sockets
    time_s: float = 0.3
    runs: int = 7

    def rows(self) -> list[str]:
        """Name the rows, in their order."""
        return [f"{self.name}, {size_text(size)}" for size, _target in self.targets]


@dataclasses.dataclass(frozen=True)
class NcclWork:
    """One operation of real NCCL in all its sizes: one row."""

    group: str
    name: str
    op: str
    sizes_bytes: tuple[int, ...]
    target: Target
    lab: LabSpec = dataclasses.field(default_factory=LabSpec)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)  # HARP's variables
    settle_s: float = 0.0
    time_s: float = 0.1
    runs: int = 5

    def rows(self) -> list[str]:
        """Name the one row."""
        return [self.name]


@dataclasses.dataclass(frozen=True)
class FailureWork:
    """A stream by the clock in which an interface is lost for good: one row."""

    group: str
    name: str
    lab: LabSpec
    failure: str  # as `--fail` has it
    target: Target
    size_bytes: int = 128 * KIB
    inflight: int = 32
    seconds: float = 3.0
    runs: int = 3

    def rows(self) -> list[str]:
        """Name the one row."""
        return [self.name]


Work = PerfWork | NcclWork | FailureWork


def size_text(size_bytes: int) -> str:
    """Write a size for a table: 8 B, 4 KB."""
    text = short_size(size_bytes)
    return f"{text} B" if text.isdecimal() else f"{text[:-1]} {text[-1]}B"


def _target_for_sizes(target: Target, *sizes_bytes: int) -> tuple[tuple[int, Target], ...]:
    return tuple((size, target) for size in sizes_bytes)


def _nccl_work(
    group: str, sizes_bytes: tuple[int, ...], target: Target, lab: LabSpec, **options: float
) -> list[NcclWork]:
    """Make the works of the three operations in one lab."""
    return [
        NcclWork(
            group,
            op,
            op,
            sizes_bytes,
            target,
            lab,
            settle_s=options.get("settle_s", 0.0),
            time_s=options.get("time_s", 0.1),
            runs=round(options["runs"]),
        )
        for op in NCCL_OPERATIONS
    ]


_LARGE = Target(speedup=1.3, cpu=0.85)
_LEVEL = Target(speedup=0.97)  # the network limits both sides
_ONE = "One interface"
_ROUND_TRIPS = "One interface, half round trips"
_BOTH_WAYS = "Both ways"
_LOSS = "Loss"

SUITE: tuple[Work, ...] = (
    PerfWork(
        f"{_ONE}, MTU 1500",
        "stream",
        (
            (4 * KIB, Target(speedup=3.5)),
            *_target_for_sizes(Target(speedup=1.3), 32 * KIB, 64 * KIB),
            *_target_for_sizes(_LARGE, 128 * KIB, 512 * KIB, MIB),
        ),
    ),
    PerfWork(
        f"{_ONE}, MTU 9000",
        "stream",
        _target_for_sizes(_LARGE, 128 * KIB, 512 * KIB, MIB),
        lab=LabSpec(mtu_bytes=9000),
    ),
    PerfWork(
        _ROUND_TRIPS,
        "half round trip",
        (
            (8, Target(speedup=1.54)),
            (KIB, Target(speedup=2.0)),
            (32 * KIB, Target(speedup=1.25)),
            *_target_for_sizes(Target(speedup=1.67), 64 * KIB, 512 * KIB),
        ),
        mode=Mode.PINGPONG,
    ),
    PerfWork(
        _BOTH_WAYS,
        "2 connections each way",
        _target_for_sizes(Target(speedup=1.3), 128 * KIB, 512 * KIB),
        mode=Mode.BIDIR,
        connections=2,
    ),
    PerfWork(
        _BOTH_WAYS,
        "64 connections each way",
        ((4 * KIB, Target(speedup=3.5)), (64 * KIB, Target(speedup=1.25))),
        mode=Mode.BIDIR,
        connections=64,
    ),
    *_nccl_work(
        "Real NCCL, 2 ranks, 8 B to 64 MB",
        NCCL_SIZES,
        Target(speedup=1.22, slowest=1.0),
        LabSpec(),
        runs=5,
    ),
    *_nccl_work(
        "Real NCCL, 4 ranks, 64 B to 16 MB",
        NCCL_SIZES_4_RANKS,
        Target(speedup=1.11),
        LabSpec(hosts=4),
        runs=3,
    ),
    PerfWork(
        "Several interfaces",
        "8 of 1 Gbit/s, one stream",
        _target_for_sizes(Target(speedup=7.6), 512 * KIB),
        inflight=32,
        lab=LabSpec(enis=8, cap_mbps=1000),
        runs=5,
    ),
    PerfWork(
        "Several interfaces",
        "4 of 1 Gbit/s, both ways, 2 connections",
        _target_for_sizes(_LEVEL, 512 * KIB),
        mode=Mode.BIDIR,
        connections=2,
        lab=LabSpec(enis=4, cap_mbps=1000),
        runs=5,
    ),
    *_nccl_work(
        "Real NCCL, 4 interfaces of 1 Gbit/s, 1 to 16 MB",
        NCCL_SIZES_CAPPED,
        _LEVEL,
        LabSpec(enis=4, cap_mbps=1000),
        settle_s=4.0,
        time_s=0.3,
        runs=3,
    ),
    *_nccl_work(
        "Real NCCL, 8 interfaces of 500 Mbit/s, 1 to 16 MB",
        NCCL_SIZES_CAPPED,
        _LEVEL,
        LabSpec(enis=8, cap_mbps=500),
        settle_s=4.0,
        time_s=0.3,
        runs=3,
    ),
    *(
        dataclasses.replace(work, env={"HARP_PATHS": "8"})
        for work in _nccl_work(
            "Real NCCL, flows capped at 500 Mbit/s, 8 paths, 1 to 16 MB",
            NCCL_SIZES_CAPPED,
            Target(speedup=3.0),
            LabSpec(flow_cap_mbps=500),
            settle_s=10.0,
            time_s=0.3,
            runs=3,
        )
    ),
    PerfWork(
        _LOSS,
        "2 Gbit/s, 0.1 % of packets, stream",
        _target_for_sizes(_LEVEL, 512 * KIB),
        lab=LabSpec(cap_mbps=2000, offload=Offload.OFF, loss_share=0.001),
    ),
    PerfWork(
        _LOSS,
        "2 Gbit/s, 1 % of packets, stream",
        _target_for_sizes(Target(speedup=1.9), 512 * KIB),
        lab=LabSpec(cap_mbps=2000, offload=Offload.OFF, loss_share=0.01),
    ),
    PerfWork(
        _LOSS,
        "no cap, 1 % of superframes, stream",
        _target_for_sizes(Target(speedup=4.0), 512 * KIB),
        lab=LabSpec(loss_share=0.01),
    ),
    FailureWork(
        "Failure",
        "one of 4 interfaces of 1 Gbit/s lost: longest pause",
        LabSpec(enis=4, cap_mbps=1000),
        "eni0:down@1",
        Target(pause_ms=100, kept=0.7),
    ),
    *(
        PerfWork(
            "`auto` beside the better of `udp` and `tcp`",
            name,
            _target_for_sizes(Target(speedup=0.97), size),
            mode=mode,
            drivers=("udp", "tcp"),
        )
        for name, size, mode in (
            ("stream", 4 * KIB, Mode.STREAM),
            ("stream", 512 * KIB, Mode.STREAM),
            ("half round trip", 32 * KIB, Mode.PINGPONG),
        )
    ),
)


def row_id(work: Work, name: str) -> str:
    """Return what names a row in the whole suite, and what `--only` searches."""
    return f"{work.group}: {name}"


def chosen_rows(only: str | None, suite: Sequence[Work] = SUITE) -> list[tuple[Work, list[str]]]:
    """Return the works and their rows whose names contain a text, in any case; all without one."""
    wanted = (only or "").casefold()
    found = [(work, [name for name in work.rows() if wanted in row_id(work, name).casefold()]) for work in suite]
    return [(work, names) for work, names in found if names]
