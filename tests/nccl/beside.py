"""NCCL's allreduce over HARP beside its own Socket transport: alternating runs, medians, the ratio's spread.

The other side is the best of Socket's settings of threads and sockets, chosen for each size by its median.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from harpctl.bench.baseline import BEST_OF
from harpctl.errors import HarpError
from tests.nccl.box import Box

MOST_BYTES = 16 << 20
ROUNDS = 5
ITERATIONS = 40
HARP = "HARP"
REPORT_VARIABLE = "HARP_NCCL_REPORT"

Times = dict[int, float]  # bytes: microseconds of one allreduce


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The sizes that a run goes through, from the least by the factor, and those that are told of."""

    least_bytes: int
    factor: int
    told: tuple[int, ...]


SWEEP = Sweep(8, 8, (8, 32 << 10, 256 << 10, 2 << 20, MOST_BYTES))
STRIPED_SWEEP = Sweep(64 << 10, 16, (64 << 10, 1 << 20, MOST_BYTES))


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


def device_sides(harp: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Name the ways to use all interfaces of a host with their environments; Socket has its own defaults."""
    return {
        "HARP striped": {**harp, "HARP_DEVICES": "striped"},
        "HARP enis": {**harp, "HARP_DEVICES": "enis"},
        "Socket": {
            "NCCL_NET_PLUGIN": "none",
            "NCCL_NET": "Socket",
            "NCCL_SOCKET_IFNAME": harp["HARP_IFNAME"],
        },
    }


def measure(box: Box, environment: Mapping[str, str], sweep: Sweep) -> Times:
    """Run one side once, data checked."""
    run = box.run(
        *("--op=allreduce", "--check", f"--iters={ITERATIONS}", "--warmup=5"),
        *(f"--min={sweep.least_bytes}", f"--max={MOST_BYTES}", f"--factor={sweep.factor}"),
        environment=environment,
    )
    if run.code or any(row.wrong for row in run.rows):
        raise HarpError(f"A side failed: {run.describe()}")
    return {row.bytes: row.time_us for row in run.rows if row.bytes in sweep.told}


def alternate(
    box: Box,
    sides: Mapping[str, Mapping[str, str]],
    sweep: Sweep = SWEEP,
    rounds: int = ROUNDS,
) -> dict[str, list[Times]]:
    """Run all sides in turn, that many times."""
    runs: dict[str, list[Times]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, environment in sides.items():
            runs[name].append(measure(box, environment, sweep))
    return runs


def compare(runs: Mapping[str, Sequence[Times]]) -> list[Line]:
    """Relate HARP to the best of the others at each size."""
    lines = []
    for size in runs[HARP][0]:
        medians = {name: statistics.median(times[size] for times in side) for name, side in runs.items()}
        best = min((name for name in runs if name != HARP), key=medians.__getitem__)
        pairs = [ours[size] / theirs[size] for ours, theirs in zip(runs[HARP], runs[best], strict=True)]
        ratio = medians[HARP] / medians[best]
        lines.append(Line(size, medians[HARP], medians[best], best, ratio, min(pairs), max(pairs)))
    return lines


def render(lines: Sequence[Line]) -> str:
    """Write the table."""
    head = (
        f"{'size (B)':>10} {'HARP (us)':>10} {'Socket (us)':>12} {'ratio':>6} {'of pairs':>13}  best Socket"
    )
    rows = [
        f"{line.bytes:>10} {line.harp_us:>10.1f} {line.socket_us:>12.1f} {line.ratio:>6.2f} "
        f"{line.least:>6.2f}-{line.greatest:<6.2f}  {line.setting}"
        for line in lines
    ]
    return "\n".join([head, *rows])


def render_sides(runs: Mapping[str, Sequence[Times]]) -> str:
    """Write the medians of all sides with their least and greatest, in milliseconds."""
    head = f"{'size (B)':>10} " + " ".join(f"{name + ' (ms)':>26}" for name in runs)
    rows = []
    for size in next(iter(runs.values()))[0]:
        cells = []
        for side in runs.values():
            times = sorted(times[size] / 1000 for times in side)
            cells.append(f"{statistics.median(times):10.2f} {times[0]:6.2f} to {times[-1]:<5.2f}")
        rows.append(f"{size:>10} " + " ".join(cells))
    return "\n".join([head, *rows])


def write_report(lines: Sequence[Line], runs: Mapping[str, Sequence[Times]], note: str) -> None:
    """Write the table as text, or with all runs as JSON, into the file that the variable names."""
    name = os.environ.get(REPORT_VARIABLE)
    if not name:
        return
    file = Path(name)
    if file.suffix == ".json":
        whole = {"note": note, "lines": [dataclasses.asdict(line) for line in lines], "runs": runs}
        file.write_text(json.dumps(whole, indent=1) + "\n")
    else:
        file.write_text(f"{note}\n{render(lines)}\n")
