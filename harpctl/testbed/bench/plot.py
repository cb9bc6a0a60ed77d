# SPDX-License-Identifier: Apache-2.0
"""Draws a benchmark: rate or half round trip over message size, a line per side, bars from least to most; or
the rate over time, with what happened marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harpctl.errors import HarpError
from harpctl.testbed.bench.compare import Row
from harpctl.testbed.bench.failover import TimedRun
from harpctl.testbed.bench.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 500  # of a line over time


def plot(file: Path, title: str, mode: str, sides: Sequence[tuple[str, Sequence[Row]]]) -> None:
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
        axes.errorbar(
            [row.bytes for row in rows], middle, yerr=[below, above], marker="o", capsize=3, label=name
        )
    sizes = sorted({row.bytes for _, rows in sides for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [format_size(size) for size in sizes], rotation=45)
    axes.minorticks_off()
    axes.set_xlabel("message size (B)")
    axes.set_ylabel("half round trip, p50 (us)" if by_time else "bus bandwidth (Gbit/s)")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    _save(file, figure)


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
    _save(file, figure)


def _save(file: Path, figure: Figure) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise HarpError(
            f"{file} can't be written: {error.strerror}.", "Name a file that you may write."
        ) from None
    finally:
        plt.close(figure)
