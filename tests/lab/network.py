# SPDX-License-Identifier: Apache-2.0
"""Runs a job for some seconds over a lab's network, and says what it moved each way and what was dropped.

What is dropped counts from the end of the warm-up on: what the first messages lose in learning a network's
rate is not what it costs.
Caps are so low that no machine is the bottleneck, and the best second counts, in which all could run: rates
do not depend on the machine's speed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from harpctl.testbed.bench.perf import Window
from harpctl.testbed.lab.counts import lost_share
from harpctl.testbed.lab.lab import Lab
from tests.lab.job import Job, until

SECONDS = 5
INTERVAL_MS = 10
SETTLED_S = 2  # after which rates count
BEST_INTERVALS = 1000 // INTERVAL_MS
BOTH_WAYS = 2
WORDS = ("--time", str(SECONDS), "--interval-ms", str(INTERVAL_MS), "--no-check")
WARMED_UP = "window starts"  # of harp-perf's log


@dataclasses.dataclass(frozen=True)
class Moved:
    """Payload in Mbit/s: of all ranks in the best second once settled, of each direction in the whole run.

    Packets: the share that the network dropped once warm; in the whole run those that HARP sent and found
    lost, and those that the network dropped.
    """

    best_mbps: float
    directions_mbps: dict[tuple[int, int], float]
    lost_share: float
    sent: int
    found_lost: int
    dropped: int


def run_over(
    lab: Lab, plugin: Path, meeting: Path, mode: str, env: Mapping[str, str], warmup: int = 1
) -> Moved:
    """Run a job over all ENIs to its end, in order, after `warmup` messages on each connection."""
    start = lab.packet_counts()
    own = {"HARP_IFNAME": "eni", **env}
    words = (*WORDS, "--inflight", "16", "--warmup", str(warmup))
    with Job(lab, plugin, mode=mode, sizes="256K", words=words, env=own, meeting=meeting) as job:
        until("the job is warm", lambda: WARMED_UP in job.log(0))
        warm = lab.packet_counts()
        assert job.wait() == [0] * job.count
        window = job.report().results[0].window
        counters = job.statistics()
    assert window is not None
    assert window.failures == []
    end = lab.packet_counts()
    share = lost_share([end.since(warm)])
    assert share is not None
    return Moved(
        best_mbps=_best_mbps(window),
        directions_mbps=_directions_mbps(window),
        lost_share=share,
        sent=counters["tx_packets"],
        found_lost=counters["lost_packets"],
        dropped=end.since(start).dropped,
    )


def _best_mbps(window: Window) -> float:
    first, last = SETTLED_S * 1000 // INTERVAL_MS, len(window.samples) - BEST_INTERVALS
    best = max(sum(window.samples[at : at + BEST_INTERVALS]) for at in range(first, last + 1))
    return best * 8 / 1e6 / (BEST_INTERVALS * INTERVAL_MS / 1000)


def _directions_mbps(window: Window) -> dict[tuple[int, int], float]:
    moved: dict[tuple[int, int], float] = {}
    for one in window.connections:
        way = (one.from_rank, one.to_rank)
        moved[way] = moved.get(way, 0.0) + one.bytes * 8 / 1e6 / SECONDS
    return moved
