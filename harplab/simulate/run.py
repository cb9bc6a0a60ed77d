# SPDX-License-Identifier: Apache-2.0
"""Runs harp-simulate (plugin/cluster), one process for each cluster, and reads what it measures."""

from __future__ import annotations

import concurrent.futures
import itertools
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from harpctl.errors import ExitCode, HarpError

PROGRAM = "harp-simulate"
HARP, TCP = "harp", "tcp"
CONNECTIONS_MAX = 40_000  # harp-simulate's


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one run. Times are virtual, those of an operation; the rate is of the busiest host."""

    collective: str
    transport: str
    hosts: int
    interfaces: int
    rate_gbit_s: float
    connections: int
    operations: int
    unfinished: int
    mean_ms: float
    least_ms: float
    most_ms: float
    ideal_ms: float
    slowdown: float
    host_gbit_s: float
    sent: int
    lost_percent: float
    queue_max_us: float
    jain: float
    events: int
    cpu_s: float

    @property
    def is_finished(self) -> bool:
        """Return whether all operations ended within the limit of virtual time."""
        return not self.unfinished


class Cluster(msgspec.Struct, frozen=True):
    """A run that is wanted: the collective, the hosts, the transport; the rest by harp-simulate's keys."""

    collective: str
    hosts: int
    transport: str
    settings: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return harp-simulate's arguments: what is given last holds."""
        own = [f"collective={self.collective}", f"hosts={self.hosts}", f"transport={self.transport}"]
        return [*self.settings, *own]


def planned(
    collectives: Sequence[str], hosts: Sequence[int], transports: Sequence[str], settings: Sequence[str]
) -> tuple[list[Cluster], list[str]]:
    """Return all runs, and a sentence for each that is left out for its size."""
    clusters, notes = [], []
    for collective, count in itertools.product(collectives, hosts):
        if collective == "alltoall" and count * (count - 1) > CONNECTIONS_MAX:
            notes.append(f"alltoall of {count} hosts is left out: more than {CONNECTIONS_MAX:,} connections.")
            continue
        clusters += [Cluster(collective, count, name, tuple(settings)) for name in transports]
    return clusters, notes


def simulate(program: Path, cluster: Cluster) -> Simulated:
    """Run one to its end. Raises HarpError with the program's own words where it refuses."""
    done = subprocess.run([program, *cluster.arguments()], capture_output=True, text=True, check=False)
    if done.returncode:
        text = done.stderr.strip().removeprefix(f"{PROGRAM}: ").splitlines()
        message = text[0] if text else f"it ended with code {done.returncode}"
        raise HarpError(f"{PROGRAM}: {message}.", f"`{program} --help` lists the keys.", ExitCode.USAGE)
    return msgspec.json.decode(done.stdout, type=Simulated)


def simulate_all(
    program: Path, clusters: Sequence[Cluster], jobs: int, step: Callable[[str], None]
) -> list[Simulated]:
    """Run all, `jobs` at a time, largest first; return them in their order."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        order = sorted(range(len(clusters)), key=lambda at: -clusters[at].hosts)
        runs = {at: pool.submit(simulate, program, clusters[at]) for at in order}
        by_run = {run: clusters[at] for at, run in runs.items()}
        try:
            for run in concurrent.futures.as_completed(by_run):
                run.result()
                cluster = by_run[run]
                step(f"{cluster.collective} {cluster.hosts} {cluster.transport}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [runs[at].result() for at in range(len(clusters))]
