# SPDX-License-Identifier: Apache-2.0
"""Runs a job for some seconds over a lab's network, and says what it moved each way and what was dropped.

A job ends early, once a second has passed at the rate that its caller wants.

What is dropped counts from the end of the warm-up on: what the first messages lose in learning a network's
rate is not what it costs.
Caps are so low that no machine is the bottleneck, and the best second counts, in which all could run: rates
do not depend on the machine's speed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path

from harplab.lab.lab import Lab
from harplab.perf.counts import lost_share
from harplab.perf.job import Window
from tests.lab.job import Job, Meter, poll_until

SECONDS = 5  # at most
INTERVAL_MS = 10
SETTLED_S = 2  # after which rates count
BEST_INTERVALS = 1000 // INTERVAL_MS
BOTH_WAYS = 2
WORDS = ("--interval-ms", str(INTERVAL_MS), "--no-check", "--inflight", "16")
WARMED_UP = "window starts"  # a line of harp-perf's log
LOOK_S = 0.05
FRAMES_SHARE = 1.08  # the share of payload that is received with its headers and acknowledgements


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
    lab: Lab,
    plugin: Path,
    meeting: Path,
    mode: str,
    env: Mapping[str, str],
    warmup: int = 1,
    enough_mbps: float = math.inf,
) -> Moved:
    """Run a job over all ENIs to its end, in order, after `warmup` messages on each connection.

    It ends once all ranks together have moved `enough_mbps` of payload for a second, at the latest after
    SECONDS.
    """
    start = lab.packet_counts()
    own = {"HARP_IFNAME": "eni", **env}
    words = (*WORDS, "--time", str(SECONDS), "--warmup", str(warmup))
    with Job(lab, plugin, mode=mode, sizes="256K", words=words, env=own, meeting=meeting) as job:
        poll_until("the job is warm", lambda: WARMED_UP in job.log(0))
        warm = lab.packet_counts()
        if not math.isinf(enough_mbps):
            _end_when_enough(job, enough_mbps)
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


def _end_when_enough(job: Job, enough_mbps: float) -> None:
    """End a job once settled when a second has passed at a rate; return also when it is to end by itself."""
    meter, warm_s = Meter(job), time.monotonic()
    with contextlib.suppress(OSError):  # a rank has ended
        while (passed_s := time.monotonic() - warm_s) < SECONDS:
            is_settled = passed_s > SETTLED_S + 1
            if meter.mbps() >= FRAMES_SHARE * enough_mbps and is_settled:
                job.end()
                return
            time.sleep(LOOK_S)


def _best_mbps(window: Window) -> float:
    first, last = SETTLED_S * 1000 // INTERVAL_MS, len(window.samples) - BEST_INTERVALS
    best = max(sum(window.samples[at : at + BEST_INTERVALS]) for at in range(first, last + 1))
    return best * 8 / 1e6 / (BEST_INTERVALS * INTERVAL_MS / 1000)


def _directions_mbps(window: Window) -> dict[tuple[int, int], float]:
    moved: dict[tuple[int, int], float] = {}
    seconds = len(window.samples) * INTERVAL_MS / 1000
    for one in window.connections:
        way = (one.from_rank, one.to_rank)
        moved[way] = moved.get(way, 0.0) + one.bytes * 8 / 1e6 / seconds
    return moved
