# SPDX-License-Identifier: Apache-2.0
"""Draws a benchmark: rate or half round trip over message size, a line per side, bars from least to most; the
rate over time, with what happened marked; or the speed-ups of the whole suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harpctl.units import short_size
from harplab.bench.failover import TimedRun
from harplab.bench.suite_run import SuiteRow
from harplab.perf.compare import Row
from harplab.plotting import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 500  # the points of a line over time
BAR_INCHES = 0.23  # the height of each row
SPEEDUP_TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def plot_sides(file: Path, title: str, mode: str, sides: Sequence[tuple[str, Sequence[Row]]]) -> None:
    """Draw the sides over each other; `require_plot` has been called."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    by_time = mode == "pingpong"
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, rows in sides:
        middle = [row.time_us if by_time else row.busbw_gbps for row in rows]
        least = [row.time_min_us if by_time else row.busbw_min_gbps for row in rows]
        greatest = [row.time_max_us if by_time else row.busbw_max_gbps for row in rows]
        below = [m - low for m, low in zip(middle, least, strict=True)]
        above = [high - m for m, high in zip(middle, greatest, strict=True)]
        axes.errorbar([row.bytes for row in rows], middle, yerr=[below, above], marker="o", capsize=3, label=name)
    sizes = sorted({row.bytes for _, rows in sides for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [short_size(size) for size in sizes], rotation=45)
    axes.minorticks_off()
    axes.set_xlabel("message size (B)")
    axes.set_ylabel("half round trip, p50 (us)" if by_time else "bus bandwidth (Gbit/s)")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    save_figure(file, figure)


def plot_timed_runs(file: Path, title: str, runs: Sequence[TimedRun]) -> None:
    """Draw each side's rate over time below the other, events as lines; `require_plot` has been called."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, rows = plt.subplots(
        len(runs),
        figsize=(11, 1 + 2.5 * len(runs)),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for run, axes in zip(runs, rows[:, 0], strict=True):
        for name, samples in ((run.name, run.samples), ("kernel TCP beside it", run.tcp)):
            if samples is None:
                continue
            drawn = samples.merged(max(samples.seconds() / POINTS, samples.interval_s))
            rates = [got * 8 / 1e9 / drawn.interval_s for got in drawn.bytes]
            axes.plot([at * drawn.interval_s for at in range(len(rates))], rates, linewidth=1, label=name)
        for number, (at_s, name) in enumerate(run.events):
            axes.axvline(at_s, color=f"C{number + 2}", linestyle="--", linewidth=1, label=name)
        axes.set_ylabel("received (Gbit/s)")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5))
    rows[0, 0].set_title(title, fontsize="small")
    rows[-1, 0].set_xlabel("time (s)")
    save_figure(file, figure)


def plot_speedups(file: Path, title: str, rows: Sequence[SuiteRow]) -> None:
    """Draw a bar for each row that has a speed-up, from 1, with its span; `require_plot` has been called."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    drawn = [row for row in rows if row.speedup]
    groups = list(dict.fromkeys(row.group for row in drawn))
    lines = len(drawn) + len(groups)
    figure, axes = plt.subplots(figsize=(9, 1.2 + BAR_INCHES * lines), layout="constrained")
    heights, labels, at = [], [], 0
    for number, group in enumerate(groups):
        heights.append(at)
        labels.append(group.replace("`", ""))
        for row in (row for row in drawn if row.group == group):
            at += 1
            _draw_speedup(axes, at, row, f"C{number % 10}")
            heights.append(at)
            labels.append(row.name)
        at += 1
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    least = min([0.9, *(row.low or 1 for row in drawn)])
    most = max([1.1, *(row.high or 1 for row in drawn)])
    axes.set_xlim(least / 1.05, most * 1.3)
    ticks = [tick for tick in SPEEDUP_TICKS if least / 1.05 <= tick <= most * 1.3]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(heights, labels, fontsize="small")
    for label in axes.get_yticklabels():
        if label.get_text() in {group.replace("`", "") for group in groups}:
            label.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(lines - 0.4, -0.6)
    axes.set_xlabel("speed-up over NCCL Socket (above 1 HARP is faster)")
    axes.set_title(title, fontsize="small")
    axes.grid(visible=True, axis="x", alpha=0.3)
    save_figure(file, figure)


def _draw_speedup(axes: Axes, at: int, row: SuiteRow, color: str) -> None:
    speedup, low, high = row.speedup or 1, row.low or 1, row.high or 1
    axes.barh(at, speedup - 1, left=1, color=color, height=0.75)
    axes.plot([low, high], [at, at], color="black", linewidth=1, alpha=0.6)
    axes.annotate(
        f"{speedup:.2f}",
        (max(high, speedup, 1), at),
        (4, 0),
        textcoords="offset points",
        va="center",
        fontsize="x-small",
    )
