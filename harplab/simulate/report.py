# SPDX-License-Identifier: Apache-2.0
"""The report of simulated clusters: a row for each collective and size, as table, Markdown and picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harplab.plotting import save_figure
from harplab.simulate.run import HARP, TCP, Simulated

HEADS = ("collective", "hosts", "ideal", "HARP", "TCP", "speed-up", "lost", "Jain")
UNITS = ("", "", "ms", "ms", "ms", "", "%", "")
LABELS = {HARP: "HARP", TCP: "TCP (model of NCCL's Socket)"}


class Row(msgspec.Struct, frozen=True):
    """A collective of so many hosts by each transport that ran."""

    collective: str
    hosts: int
    by: dict[str, Simulated]

    def speedup(self) -> float | None:
        """Return TCP's time as a multiple of HARP's; None where one is missing or did not finish."""
        ours, theirs = self.by.get(HARP), self.by.get(TCP)
        if not ours or not theirs or not ours.is_finished or not theirs.is_finished:
            return None
        return theirs.mean_ms / ours.mean_ms


def rows_of(results: Sequence[Simulated]) -> list[Row]:
    """Put the transports of one cluster beside each other."""
    rows: dict[tuple[str, int], dict[str, Simulated]] = {}
    for one in results:
        rows.setdefault((one.collective, one.hosts), {})[one.transport] = one
    return [Row(collective, hosts, by) for (collective, hosts), by in rows.items()]


def _time_text(one: Simulated | None) -> str:
    if one is None:
        return "-"
    return f"{one.mean_ms:.2f}" if one.is_finished else "unfinished"


def _pair(row: Row, name: str, digits: int) -> str:
    return ", ".join(f"{getattr(row.by[key], name):.{digits}f}" for key in (HARP, TCP) if key in row.by)


def texts(row: Row) -> list[str]:
    """Write a row's cells; figures of both transports stand as HARP's, TCP's."""
    speedup = row.speedup()
    return [
        row.collective,
        str(row.hosts),
        f"{next(iter(row.by.values())).ideal_ms:.2f}",
        _time_text(row.by.get(HARP)),
        _time_text(row.by.get(TCP)),
        "-" if speedup is None else f"{speedup:.2f}",
        _pair(row, "lost_percent", 2),
        _pair(row, "jain", 2),
    ]


def lines_of(rows: Sequence[Row]) -> list[Sequence[str]]:
    """Return heads, units and cells, as print_rows takes them."""
    return [HEADS, UNITS, *map(texts, rows)]


def markdown(rows: Sequence[Row]) -> str:
    """Write the table as Markdown."""
    heads = [f"{head} ({unit})" if unit else head for head, unit in zip(HEADS, UNITS, strict=True)]
    lines = [heads, ["---", *["---:"] * (len(HEADS) - 1)], *map(texts, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plot(file: Path, title: str, rows: Sequence[Row]) -> None:
    """Draw the slowdown over the number of hosts, a panel for each collective; after require_plot."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    names = list(dict.fromkeys(row.collective for row in rows))
    figure, panels = plt.subplots(
        1, len(names), figsize=(1 + 3 * len(names), 3.6), layout="constrained", sharey=True, squeeze=False
    )
    for axes, name in zip(panels[0], names, strict=True):
        drawn = [row for row in rows if row.collective == name]
        for transport in (HARP, TCP):
            done = [row.by[transport] for row in drawn if transport in row.by]
            done = [one for one in done if one.is_finished]
            if done:
                hosts = [one.hosts for one in done]
                axes.plot(hosts, [one.slowdown for one in done], marker="o", label=LABELS[transport])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        sizes = sorted({row.hosts for row in drawn})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_title(name, fontsize="small")
        axes.set_xlabel("hosts")
        axes.grid(visible=True, alpha=0.3)
    panels[0, 0].set_ylabel("time as a multiple of the ideal")
    panels[0, 0].legend(fontsize="x-small")
    figure.suptitle(title, fontsize="small")
    save_figure(file, figure)
