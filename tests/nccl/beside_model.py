# SPDX-License-Identifier: Apache-2.0
"""harp-simulate beside the lab: the same collectives on the same networks, in virtual time and measured.

`python -m tests.nccl.beside_model` prints the table of docs/reference/simulate.md. At these rates a packet takes
tenths of a millisecond, so that the network decides and not the cores of this machine. Rings and trees are those
of an official NCCL, since their messages wait for each other; all-to-all and incast are harp-perf's, but for
Socket over several interfaces, which harp-perf has one of. NCCL's ranks share cores: their threads sleep where
they poll in vain, and run before all else of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from harpctl.build_info import built_file
from harplab.bench.cores import available_cores
from harplab.bench.nccl_command import choose_cores
from harplab.bench.nccl_measure import NcclJob, NcclPlace, plugin_side, run_side, socket_sides
from harplab.bench.nccl_wheel import NEWEST, fetch_nccl, socket_baseline, wheel_of
from harplab.bench.places import LabHosts
from harplab.lab.caps import SHORT_BURST_PACKETS
from harplab.lab.commands import Command, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import ETHERNET_BYTES, LabSpec
from harplab.perf.baseline import cache_dir
from harplab.perf.hosts import Program
from harplab.perf.job import PerfJob, run_perf
from harplab.simulate.run import HARP, PROGRAM, TCP, Cluster, Simulated, simulate

RUNS = 5
WITHIN = 0.15
HOST_QUEUE_BYTES = 256 << 20  # a host's own queue, before its interface, holds what its sockets send
SKEW_US = 1000  # hosts that share two cores begin an operation so far apart
MODEL_OPERATIONS = 6  # the first is not counted
MODEL_SEEDS = 5  # the mean of so many runs: one differs from the next by up to 12 %
NAP_US = 200  # NCCL's threads sleep so long where they poll in vain: less than a packet takes
BUFFER_STEPS = 8  # the steps of NCCL's buffer; a slice of a ring has two of them
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Case:
    """A collective on a network. Sizes are those of the simulator: MiB of a host, KiB of a message."""

    collective: str
    transport: str
    hosts: int
    interfaces: int
    cap_mbps: float
    size_mib: float
    mtu_bytes: int = 1500
    queue_us: float = 20_000
    message_kib: int = 256

    @property
    def is_nccl(self) -> bool:
        """Return whether NCCL runs it: else harp-perf."""
        return self.collective in {"ring", "tree"} or (self.transport == TCP and self.interfaces > 1)

    @property
    def depth(self) -> int:
        """Return the messages under way: a slice of NCCL's ring is two steps of its buffer."""
        return BUFFER_STEPS // 2 if self.collective == "ring" else BUFFER_STEPS

    @property
    def channels(self) -> int:
        """Return the simulator's channels: HARP stripes one, Socket needs one for each interface."""
        return self.interfaces if self.transport == TCP and self.collective != "alltoall" else 1

    def spec(self) -> LabSpec:
        """Describe its lab: a switch whose ports have the queue."""
        return LabSpec(
            hosts=self.hosts,
            enis=self.interfaces,
            mtu_bytes=self.mtu_bytes,
            cap_mbps=self.cap_mbps,
            queue_us=self.queue_us,
            switch=True,
        )

    def settings(self, way_us: float) -> tuple[str, ...]:
        """Write the simulator's keys; a cap counts the headers of Ethernet, the simulator IP packets."""
        frame_bytes = self.mtu_bytes + ETHERNET_BYTES
        of_ip = self.mtu_bytes / frame_bytes
        queue_bytes = self.cap_mbps / 8 * self.queue_us
        return (
            f"interfaces={self.interfaces}",
            f"rate={self.cap_mbps / 1000 * of_ip:.6f}",
            f"mtu={self.mtu_bytes}",
            f"queue_kb={queue_bytes * of_ip / 1024:.3f}",
            f"burst_kb={SHORT_BURST_PACKETS * self.mtu_bytes / 1024:.3f}",
            "link_us=0",
            f"host_us={way_us / 2:.1f}",
            f"size_mb={self.size_mib:g}",
            f"message_kb={self.message_kib}",
            f"depth={self.depth}",
            f"channels={self.channels}",
            f"peers={self.hosts - 1}",
            f"skew_us={SKEW_US}",
            f"operations={MODEL_OPERATIONS}",
            "limit_s=300",
        )


@dataclasses.dataclass(frozen=True)
class Compared:
    """A case's figures: the way between two hosts by ping, the model's runs, the times of the lab's."""

    case: Case
    way_us: float
    models: tuple[Simulated, ...]
    lab_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """Return the lab's time."""
        return statistics.median(self.lab_ms)

    @property
    def model_ms(self) -> float:
        """Return the model's time."""
        return statistics.mean(one.mean_ms for one in self.models)

    @property
    def ratio(self) -> float:
        """Return the model's time as a multiple of the lab's."""
        return self.model_ms / self.median_ms

    @property
    def is_within(self) -> bool:
        """Return whether the model is right."""
        return abs(self.ratio - 1) <= WITHIN


# ---- the lab ----


def _lengthen_host_queues(lab: Lab) -> None:
    """Let no host lose what it sends, as a NIC makes its host wait and drops nothing."""
    spec = lab.spec
    burst = str(SHORT_BURST_PACKETS * spec.frame_bytes)
    bucket = ("tbf", "rate", f"{spec.cap_of(0):g}mbit", "burst", burst, "limit", str(HOST_QUEUE_BYTES))
    for host in lab.hosts:
        for eni in lab.enis:
            run_command(Command(("tc", "-netns", host, "qdisc", "replace", "dev", eni, "root", *bucket)))


def _measure_way_us(lab: Lab) -> float:
    shown = run_command(run_inside(lab.hosts[0], "ping", "-q", "-c", "20", "-i", "0.01", lab.address(1)))
    found = re.search(r"= [\d.]+/([\d.]+)/", shown)
    assert found, shown
    return float(found[1]) * 1000 / 2


def _plugin_of(case: Case) -> tuple[Path, dict[str, str]]:
    if case.transport == TCP:
        return socket_baseline()
    return built_file("libnccl-net.so"), {"HARP_DRIVER": "udp"}  # the simulator has datagrams only


def _run_harp_perf(lab: Lab, case: Case) -> float:
    """Return the milliseconds that all messages of an operation take, after as many before."""
    receivers = 1 if case.collective == "incast" else case.hosts - 1
    messages = round(case.size_mib * 1024 / case.message_kib / receivers)
    job = PerfJob(
        case.collective,
        (case.message_kib << 10,),
        inflight=case.depth,
        check=False,
        iterations=messages,
        warmup=messages,
    )
    plugin, env = _plugin_of(case)
    done = run_perf(LabHosts(lab), Program(built_file("harp-perf"), plugin, env), job)
    return done.report.results[0].seconds * 1000


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """Let what is started run before all else of the machine, which its sleeping threads leave most of the time.

    An ordinary thread that yields or wakes may wait until another one has used its slice, 3 to 4 ms.
    """
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameters)


def _run_nccl(lab: Lab, case: Case) -> float:
    """Return the milliseconds of an operation; the channels of a tree are both trees of a pair."""
    enis = ",".join(lab.enis)
    channels = str({"tree": 2 * case.channels, "alltoall": case.interfaces}.get(case.collective, case.channels))
    step_kib = case.message_kib // (BUFFER_STEPS // case.depth)
    env = {
        "NCCL_PROTO": "Simple",
        "NCCL_MIN_NCHANNELS": channels,
        "NCCL_MAX_NCHANNELS": channels,
        "NCCL_NCHANNELS_PER_NET_PEER": "1",
        "NCCL_BUFFSIZE": str(BUFFER_STEPS * step_kib << 10),
        "NCCL_SOCKET_IFNAME": f"={enis}",
        "HARP_IFNAME": enis,
        "HARP_SHARED_CLOCK": "on",
    }
    op, size_bytes = "allreduce", round(case.size_mib * MIB)
    if case.collective == "alltoall":  # the size holds a rank's part for itself
        op, size_bytes = "alltoall", size_bytes // (case.hosts - 1) * case.hosts
    else:
        env["NCCL_ALGO"] = case.collective.capitalize()
    library = fetch_nccl(wheel_of(NEWEST), cache_dir())
    cores, _ = choose_cores(case.hosts, 0, available_cores())
    place = NcclPlace(built_file("harp-nccl"), library, tuple(lab.hosts), cores)
    job = NcclJob(op=op, sizes_bytes=(size_bytes,), ranks=case.hosts, iterations=2, check=False, nap_us=NAP_US)
    with tempfile.TemporaryDirectory(prefix="harp-model-") as folder, _ahead_of_others():
        if case.transport == TCP:
            (side,) = socket_sides(env, best=False)
        else:
            plugin, own = _plugin_of(case)
            side = plugin_side("HARP", plugin, Path(folder), {**env, **own}, "HARP")
        return run_side(place, side, job)[size_bytes].time_us / 1000


def _simulate_seeds(case: Case, way_us: float) -> Iterator[Simulated]:
    for seed in range(1, MODEL_SEEDS + 1):
        settings = (*case.settings(way_us), f"seed={seed}")
        cluster = Cluster(case.collective, case.hosts, case.transport, settings)
        yield simulate(built_file(PROGRAM, "harplab"), cluster)


def compare(case: Case, runs: int = RUNS) -> Compared:
    """Measure a case, and simulate it."""
    with Lab(case.spec()) as lab:
        _lengthen_host_queues(lab)
        way_us = _measure_way_us(lab)
        run = _run_nccl if case.is_nccl else _run_harp_perf
        lab_ms = tuple(run(lab, case) for _ in range(runs))
    return Compared(case, way_us, tuple(_simulate_seeds(case, way_us)), lab_ms)


# ---- the table ----

CASES = (
    Case("ring", HARP, 2, 1, 50, 2),
    Case("ring", HARP, 4, 1, 20, 2),
    Case("ring", HARP, 4, 4, 20, 8),
    Case("tree", HARP, 4, 1, 50, 4, message_kib=128),
    Case("ring", TCP, 4, 1, 50, 2),
    Case("ring", TCP, 4, 4, 20, 8),
    Case("ring", TCP, 8, 1, 20, 2, message_kib=128),
    Case("tree", TCP, 4, 1, 50, 4, message_kib=128),
    Case("tree", TCP, 8, 2, 20, 4, message_kib=128),
    Case("alltoall", HARP, 2, 1, 20, 1, message_kib=128),
    Case("alltoall", HARP, 4, 1, 20, 1.5, message_kib=128),
    Case("alltoall", TCP, 4, 1, 50, 3),
    Case("alltoall", HARP, 4, 2, 100, 12, mtu_bytes=9000),
    Case("alltoall", HARP, 8, 1, 20, 3.5, message_kib=128),
    Case("alltoall", TCP, 8, 1, 20, 3.5, message_kib=128),
    Case("alltoall", HARP, 8, 4, 20, 14, message_kib=128),
    Case("alltoall", TCP, 8, 4, 20, 14, message_kib=128),
    Case("incast", HARP, 4, 1, 50, 2),
    Case("incast", TCP, 4, 1, 50, 2),
    Case("incast", HARP, 8, 4, 20, 4),
    Case("incast", TCP, 8, 1, 20, 1),
)
HEADS = ("collective", "by", "hosts", "interfaces", "MTU", "model (ms)", "lab (ms)", "model/lab")


def texts(one: Compared) -> list[str]:
    """Write a row's cells."""
    case = one.case
    return [
        case.collective,
        "HARP" if case.transport == HARP else "TCP",
        str(case.hosts),
        f"{case.interfaces} of {case.cap_mbps:g} Mbit/s",
        str(case.mtu_bytes),
        f"{one.model_ms:.0f}",
        f"{one.median_ms:.0f} ({min(one.lab_ms):.0f} to {max(one.lab_ms):.0f})",
        f"{one.ratio:.2f}",
    ]


def main(argv: Sequence[str]) -> int:
    """Compare; return 1 where the model is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.nccl.beside_model", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each case in the lab")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that begin so, as 'ring HARP 4'")
    chosen = parser.parse_args(argv)
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}", flush=True)
    are_within = True
    for case in CASES:
        name = f"{case.collective} {'HARP' if case.transport == HARP else 'TCP'} {case.hosts} {case.interfaces}"
        if name.startswith(chosen.only):
            one = compare(case, chosen.runs)
            are_within &= one.is_within
            print(f"| {' | '.join(texts(one))} |", flush=True)
    return not are_within


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
