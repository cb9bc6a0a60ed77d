# SPDX-License-Identifier: Apache-2.0
"""The report of `harpctl lab suite`: a line for each row, the Markdown, and the targets that are missed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError
from harplab.bench.suite import Target, Work, row_id, size_text
from harplab.bench.suite_file import SuiteFile
from harplab.bench.suite_run import SOCKET, SuiteRow
from harplab.bench.table import figure_text

BEGIN, END = "<!-- harpctl lab suite: begin -->", "<!-- harpctl lab suite: end -->"
COLUMNS = 100
QUIET_LOAD = 1.0
HEADS = ("work", "HARP", "Socket", "speed-up (lowest to highest)", "CPU", "target")


def find_shortfalls(row: SuiteRow) -> list[str]:
    """Return what a row misses of its target, as figures are shown: with two decimals."""
    target = row.target
    at_least = (
        ("speed-up", row.speedup, target.speedup),
        ("slowest size", row.low, target.slowest),
        ("rate kept", row.kept, target.kept),
    )
    at_most = (("CPU", row.cpu, target.cpu), ("pause in ms", row.ours, target.pause_ms))
    missed = [
        f"{what} {found:.2f}, not {wanted:.2f}"
        for what, found, wanted in at_least
        if found is not None and wanted is not None and round(found, 2) < wanted
    ]
    return missed + [
        f"{what} {found:.2f}, not {wanted:.2f}"
        for what, found, wanted in at_most
        if found is not None and wanted is not None and round(found, 2) > wanted
    ]


def target_text(target: Target) -> str:
    """Write a target for the table."""
    parts = [f"≥ {target.speedup:.2f}"] if target.speedup is not None else []
    if target.slowest is not None:
        parts.append(f"each size ≥ {target.slowest:.2f}")
    if target.cpu is not None:
        parts.append(f"CPU ≤ {target.cpu:.2f}")
    if target.pause_ms is not None:
        parts.append(f"≤ {target.pause_ms:.0f} ms")
    if target.kept is not None:
        parts.append(f"keeps ≥ {target.kept:.2f}")
    return ", ".join(parts)


def row_text(row: SuiteRow) -> str:
    """Write a row in one line, as it is finished."""
    parts = []
    if row.speedup is not None:
        parts.append(f"{row.speedup:.2f} ({_range_text(row)})")
    if row.ours is not None:
        theirs = "stops" if row.theirs is None else figure_text(row.theirs)
        parts.append(f"{figure_text(row.ours)} {row.unit}, {row.beside} {theirs}")
    if row.cpu is not None:
        parts.append(f"CPU {row.cpu:.2f}")
    if row.kept is not None:
        parts.append(f"keeps {row.kept:.2f} of the rate")
    missed = find_shortfalls(row)
    if missed:
        parts.append(f"missed: {'; '.join(missed)}")
    return f"{row.id}: {', '.join(parts)}"


def sorted_rows(rows: Iterable[SuiteRow], suite: Sequence[Work]) -> list[SuiteRow]:
    """Put rows into the suite's order."""
    order = [row_id(work, name) for work in suite for name in work.rows()]
    return sorted(rows, key=lambda row: order.index(row.id))


def write_results(content: SuiteFile, suite: Sequence[Work]) -> str:
    """Write what was measured, the table, and the count of missed targets, between two lines that mark it."""
    rows = sorted_rows(content.rows, suite)
    lines = [BEGIN, "", *_wrap_text(_made_text(content)), "", *_table_lines(rows), ""]
    missed = sum(bool(find_shortfalls(row)) for row in rows)
    with_target = sum(row.target != Target() for row in rows)
    lines += _wrap_text(f"Missed, of {with_target} rows with a target: {missed}.")
    absent = [
        row_id(work, name)
        for work in suite
        for name in work.rows()
        if row_id(work, name) not in {row.id for row in rows}
    ]
    if absent:
        lines += ["", *_wrap_text(f"Rows of the suite that were not measured: {len(absent)}.")]
    return "\n".join([*lines, "", END, ""])


def title_text(content: SuiteFile) -> str:
    """Return the title of the picture, with what makes its figures unreliable."""
    made = content.made
    parts = [made.processor, f"{made.cpus} cores", f"HARP {made.build}"]
    if made.quick:
        parts.append("short, single runs")
    if max(content.loads, default=0.0) > QUIET_LOAD:
        parts.append(f"beside other work: load {max(content.loads):.1f}")
    return ", ".join(parts)


def require_markdown(path: Path) -> None:
    """Raise HarpError for a file without the marks between which the table goes."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text[text.index(BEGIN) :]:
        raise HarpError(
            f"{path} has no place for the table.",
            f"Add the lines {BEGIN} and {END}, or name a new file.",
            ExitCode.USAGE,
        )


def write_markdown(path: Path, text: str) -> None:
    """Write a new file, or replace what is between the marks of one. Raises HarpError."""
    require_markdown(path)
    if path.exists():
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        text = before + text.rstrip("\n") + rest.partition(END)[2]
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HarpError(f"{path} can't be written: {error.strerror}.", "Name a file that you may write.") from None


def _made_text(content: SuiteFile) -> str:
    made = content.made
    command = f"harpctl lab suite{' --quick' if made.quick else ''}"
    machine = f"{made.processor}, {made.cpus} cores, Linux {made.kernel.partition('-')[0]}"
    begun = min((row.time for row in content.rows), default="")
    runs = sorted({row.runs for row in content.rows})
    span = f"{runs[0]} to {runs[-1]}" if len(runs) > 1 else "".join(map(str, runs))
    counts = f"Medians of {span} runs" if runs and runs[-1] > 1 else "One run"
    parts = [
        f"`{command}`: HARP {made.build} beside NCCL {made.nccl}'s sockets; {machine}; {begun}.",
        f"{counts} of each side in turns, ranks on cores {', '.join(map(str, made.cores))}.",
    ]
    if made.quick:
        parts.append("**Short, single runs: the figures scatter widely.**")
    if max(content.loads, default=0.0) > QUIET_LOAD:
        parts.append(f"**Other work was on the machine: a load of up to {max(content.loads):.1f}.**")
    if content.core_figures:
        least = min(figures.beside_min_ns for figures in content.core_figures)
        most = max(figures.beside_max_ns for figures in content.core_figures)
        again = sum(figures.made_again for figures in content.core_figures)
        apart = sum(figures.kept_apart for figures in content.core_figures)
        parts.append(
            f"A cache line took {least:.0f} to {most:.0f} ns from the first of them to the second and back "
            f"beside the runs; {again} runs were made again, {apart} were kept beside cores that were apart."
        )
    return " ".join(parts)


def _table_lines(rows: Sequence[SuiteRow]) -> list[str]:
    lines = [_table_line(HEADS), "|" + "---|" * len(HEADS)]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append(_table_line([f"**{group}**"]))
        lines.append(_table_line(_row_cells(row)))
    return lines


def _row_cells(row: SuiteRow) -> list[str]:
    missed = ": missed" if find_shortfalls(row) else ""
    target = target_text(row.target)
    return [
        row.name + (f"; keeps {row.kept:.2f} of its rate" if row.kept is not None else ""),
        f"{figure_text(row.ours)} {row.unit}" if row.ours is not None else "",
        _their_cell(row),
        f"**{row.speedup:.2f}** ({_range_text(row)})" if row.speedup is not None else "",
        f"{row.cpu:.2f}" if row.cpu is not None else "",
        target + missed,
    ]


def _their_cell(row: SuiteRow) -> str:
    if row.ours is None:
        return ""
    if row.theirs is None:
        return "stops"
    named = f" (`{row.beside}`)" if row.beside != SOCKET else ""
    return f"{figure_text(row.theirs)} {row.unit}{named}"


def _range_text(row: SuiteRow) -> str:
    text = f"{row.low:.2f} to {row.high:.2f}"
    if not row.sizes:
        return text
    slowest = min(row.sizes, key=lambda size: size.speedup)
    fastest = max(row.sizes, key=lambda size: size.speedup)
    ends = (f"{size.speedup:.2f} at {size_text(size.bytes)}" for size in (slowest, fastest))
    return " to ".join(ends)


def _table_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)
