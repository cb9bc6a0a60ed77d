# SPDX-License-Identifier: Apache-2.0
"""Benchmark tables in nccl-tests' manner: the same columns on a terminal (rich) and in a file (plain).

Rates are Gbit/s, as ENIs are sold, where nccl-tests prints GB/s; the heads name the unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rich.table import Table

from harpctl.console import Console
from harpctl.units import short_size
from harplab.perf.compare import Ratio, Row


@dataclasses.dataclass(frozen=True)
class Column:
    """A heading, the unit below it, and how a row's cell is written."""

    head: str
    unit: str
    cell: Callable[[Row], str]


def figure_text(value: float | None) -> str:
    """Write three significant digits or so, never an exponent."""
    if value is None:
        return "-"
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def percent_text(share: float | None) -> str:
    """Write a share in percent."""
    return "-" if share is None else f"{share * 100:.2f}"


def count_text(value: int | None) -> str:
    """Write a count; nothing was counted without one."""
    return "N/A" if value is None else str(value)


RATE_COLUMNS = (
    Column("size", "(B)", lambda row: str(row.bytes)),
    Column("count", "(msgs)", lambda row: str(row.messages)),
    Column("time", "(us)", lambda row: figure_text(row.time_us)),
    Column("algbw", "(Gbit/s)", lambda row: figure_text(row.algbw_gbps)),
    Column("busbw", "(Gbit/s)", lambda row: figure_text(row.busbw_gbps)),
    Column("#wrong", "", lambda row: count_text(row.wrong)),
    Column("cpu", "(s/GB)", lambda row: figure_text(row.cpu_s_per_gb)),
)
LOST = Column("lost", "(%)", lambda row: percent_text(row.lost_share))


def _percentile_cell(field: str) -> Callable[[Row], str]:
    return lambda row: figure_text(getattr(row.latency_us, field) if row.latency_us else None)


LATENCY_COLUMNS = (
    *RATE_COLUMNS[:2],
    Column("p50", "(us)", _percentile_cell("p50")),
    Column("p90", "(us)", _percentile_cell("p90")),
    Column("p99", "(us)", _percentile_cell("p99")),
    Column("p99.9", "(us)", _percentile_cell("p999")),
    Column("max", "(us)", _percentile_cell("max")),
    Column("#wrong", "", lambda row: count_text(row.wrong)),
)


def columns_for(mode: str, rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns that apply to a mode; what the network dropped is the last where it was counted."""
    columns = LATENCY_COLUMNS if mode == "pingpong" else RATE_COLUMNS
    return (*columns, LOST) if any(row.lost_share is not None for row in rows) else columns


def single_table(mode: str, rows: Sequence[Row]) -> list[list[str]]:
    """Lay out one side: a line of heads, a line of units, a line per size."""
    columns = columns_for(mode, rows)
    return [
        [column.head for column in columns],
        [column.unit for column in columns],
        *([column.cell(row) for column in columns] for row in rows),
    ]


def versus_table(
    mode: str, names: tuple[str, str], rows: Sequence[tuple[Row, Row]], ratios: Sequence[Ratio]
) -> list[list[str]]:
    """Lay out two sides: the figure that is compared of each, the ratio, its spread, machine time of each.

    What the network dropped of each is the last where it was counted.
    """
    by_time = mode == "pingpong"
    unit = "(us)" if by_time else "(Gbit/s)"
    lines = [
        ["size", *names, "ratio", "min-max", "#wrong"],
        ["", unit, unit, "of medians", "of pairs", ""],
        *(_comparison_cells(pair, ratio, by_time=by_time) for pair, ratio in zip(rows, ratios, strict=True)),
    ]
    if not by_time:
        _append_heads(lines, ["cpu", "cpu", "cpu"], [*(f"{name} (s/GB)" for name in names), "ratio"])
        for line, (ours, theirs), ratio in zip(lines[2:], rows, ratios, strict=True):
            line += [figure_text(figure) for figure in (ours.cpu_s_per_gb, theirs.cpu_s_per_gb, ratio.cpu)]
    if any(row.lost_share is not None for pair in rows for row in pair):
        _append_heads(lines, ["lost", "lost"], [f"{name} (%)" for name in names])
        for line, pair in zip(lines[2:], rows, strict=True):
            line += [percent_text(row.lost_share) for row in pair]
    return lines


def _comparison_cells(pair: tuple[Row, Row], ratio: Ratio, *, by_time: bool) -> list[str]:
    """Write the cells of one size that are compared."""
    ours, theirs = pair
    wrong = None if ours.wrong is None or theirs.wrong is None else ours.wrong + theirs.wrong
    return [
        short_size(ours.bytes),
        *(figure_text(row.time_us if by_time else row.busbw_gbps) for row in pair),
        f"{ratio.of_medians:.2f}",
        f"{ratio.least:.2f}-{ratio.greatest:.2f}",
        count_text(wrong),
    ]


def _append_heads(lines: list[list[str]], heads: Sequence[str], units: Sequence[str]) -> None:
    lines[0] += heads
    lines[1] += units


def print_rows(console: Console, lines: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print heads, units and cells right-aligned, then the notes; plain where the output is no terminal."""
    if console.is_terminal:
        table = Table(box=None, pad_edge=False)
        for head, unit in zip(lines[0], lines[1], strict=True):
            table.add_column(f"{head}\n[dim]{unit}[/dim]" if unit else head, justify="right", no_wrap=True)
        for line in lines[2:]:
            table.add_row(*line)
        console.print(table)
    else:
        console.file.write(plain_text(lines))
    for note in notes:
        console.print(f"# {note}", soft_wrap=True, markup=False, highlight=False)


def plain_text(lines: Sequence[Sequence[str]]) -> str:
    """Write the table for a file: `#` starts the head's lines, as in nccl-tests."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ""
    for number, line in enumerate(lines):
        cells = "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        text += ("# " if number < 2 else "  ") + cells + "\n"
    return text
