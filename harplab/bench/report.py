# SPDX-License-Identifier: Apache-2.0
"""Reports of the benchmarks: a bar of progress, tables with their notes, JSON, and what went wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harpctl.console import ERR, Console
from harpctl.errors import ExitCode, HarpError
from harpctl.units import short_size
from harplab.bench.cores import CoreFigures
from harplab.bench.table import print_rows, single_table, versus_table
from harplab.perf.job import Mode, PerfJob
from harplab.perf.measure import Measured, Side, Step, setting_text

LOST = "lost: of the packets that the network was given in both directions, those it dropped, handshakes too"


@contextlib.contextmanager
def show_progress(console: Console, total: int) -> Iterator[Step]:
    """Show a bar on a terminal; nothing in a log."""
    if not console.is_terminal:
        yield lambda _text: None
        return
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, completed=-1)

        def step(text: str) -> None:
            bar.update(task, description=text, advance=1)

        yield step


@dataclasses.dataclass(frozen=True)
class Output:
    """In which forms the results are shown."""

    plot: Path | None = None
    as_json: bool = False

    def fail(self, error: HarpError) -> None:
        """Raise an error after the results; with --json its message alone, since these are the document."""
        if self.as_json:
            ERR.print(f"harpctl: {error.message}", markup=False)
            raise click.exceptions.Exit(error.exit_code)
        raise error

    def require_right(self, wrong: int, what: str) -> None:
        """Fail if data was wrong."""
        if wrong:
            self.fail(HarpError(f"{wrong} {what} arrived with wrong bytes.", exit_code=ExitCode.WRONG_DATA))


def made_here(place: str) -> dict[str, object]:
    """Return what each document begins with: where and when it was made."""
    system = os.uname()
    return {
        "place": place,
        "machine": {"kernel": system.release, "arch": system.machine, "cpus": os.cpu_count()},
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def make_document(
    place: str,
    job: PerfJob,
    runs: int,
    sides: Sequence[Side],
    measured: Measured,
    cores: CoreFigures | None = None,
) -> dict[str, object]:
    """Return the whole measurement: what was run, where, and every row."""
    return {
        **made_here(place),
        "job": {name: value for name, value in dataclasses.asdict(job).items() if name != "sizes_bytes"},
        "runs": runs,
        "core_latency": cores,
        "sides": [
            {
                "name": side.name,
                "plugin": str(side.program.plugin),
                "env": dict(side.program.env),
                "rows": [
                    {**dataclasses.asdict(row), "latency_us": row.latency_us, "setting": setting}
                    for row, setting in zip(rows, settings, strict=True)
                ],
            }
            for side, rows, settings in zip(sides, measured.rows, measured.settings, strict=True)
        ],
        "ratios": [dataclasses.asdict(ratio) for ratio in measured.ratios],
    }


def notes_of(place: str, job: PerfJob, runs: int, measured: Measured) -> list[str]:
    """Return the notes below the table: what was run and how."""
    checked = "every byte checked" if job.check else "data not checked"
    by_time = job.mode == Mode.PINGPONG.value
    waited = " (sends waited for)" if job.wait_sent else ""
    lines = [
        place,
        f"{job.mode}{waited}, {job.connections} connection(s), {job.inflight} in flight, {checked}",
        f"median of {runs} run(s)" + ("" if by_time else "; cpu is machine time with softirq, without start-up"),
    ]
    if any(row.lost_share is not None for rows in measured.rows for row in rows):
        lines.append(LOST)
    if len(measured.names) == 2:
        less = "less" if by_time else "more"
        lines.append(
            f"ratio = {measured.names[0]} / {measured.names[1]}; {less} is better for {measured.names[0]}"
        )
    for name, rows, settings in zip(measured.names, measured.rows, measured.settings, strict=True):
        chosen = zip(rows, settings, strict=True)
        lines += best_notes(name, {row.bytes: setting_text(one) for row, one in chosen if one})
    return lines


def best_notes(name: str, settings: dict[int, str]) -> list[str]:
    """Return the note that names the settings that were best, by size; none where the defaults were."""
    words = "; ".join(f"{short_size(size)}: {setting}" for size, setting in settings.items())
    return [f"{name} best with {words} (default elsewhere)"] if words else []


def print_measured(
    console: Console, place: str, job: PerfJob, runs: int, measured: Measured, notes: Sequence[str]
) -> None:
    """Print the table of one side or two, and the notes."""
    if len(measured.names) == 2:
        pairs = list(zip(*measured.rows, strict=True))
        lines = versus_table(job.mode, (measured.names[0], measured.names[1]), pairs, measured.ratios)
    else:
        lines = single_table(job.mode, measured.rows[0])
    print_rows(console, lines, [*notes_of(place, job, runs, measured), *notes])
