# SPDX-License-Identifier: Apache-2.0
"""NCCL's allreduce over HARP beside its own Socket transport: alternating runs, medians, the ratio's spread.

The other side is the best of Socket's settings of threads and sockets, chosen for each size by its median.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from harplab.bench.nccl_wheel import BEST_OF

SIZES = (8, 32 << 10, 256 << 10, 2 << 20, 16 << 20)
ROUNDS = 5
HARP = "HARP"

Times = dict[int, float]  # bytes: microseconds of one allreduce


@dataclasses.dataclass(frozen=True)
class Line:
    """One size: medians, and the least and greatest ratio of neighbouring runs."""

    bytes: int
    harp_us: float
    socket_us: float
    setting: str
    ratio: float
    least: float
    greatest: float


def socket_sides() -> dict[str, dict[str, str]]:
    """Name Socket's settings with their environments; the first is what a job gets that sets nothing."""
    sides = {}
    for setting in BEST_OF:
        words = "x".join(setting.values())
        sides[f"Socket {words}".rstrip()] = {**setting, "NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}
    return sides


def compare_runs(runs: Mapping[str, Sequence[Times]]) -> list[Line]:
    """Relate HARP to the best of the others at each size."""
    lines = []
    for size in runs[HARP][0]:
        medians = {name: statistics.median(times[size] for times in side) for name, side in runs.items()}
        best = min((name for name in runs if name != HARP), key=medians.__getitem__)
        pairs = [ours[size] / theirs[size] for ours, theirs in zip(runs[HARP], runs[best], strict=True)]
        ratio = medians[HARP] / medians[best]
        lines.append(Line(size, medians[HARP], medians[best], best, ratio, min(pairs), max(pairs)))
    return lines


def render_table(lines: Sequence[Line]) -> str:
    """Write the table."""
    head = f"{'size (B)':>10} {'HARP (us)':>10} {'Socket (us)':>12} {'ratio':>6} {'of pairs':>13}  best Socket"
    rows = [
        f"{line.bytes:>10} {line.harp_us:>10.1f} {line.socket_us:>12.1f} {line.ratio:>6.2f} "
        f"{line.least:>6.2f}-{line.greatest:<6.2f}  {line.setting}"
        for line in lines
    ]
    return "\n".join([head, *rows])
