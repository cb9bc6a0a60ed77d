# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench --all`: all works of the suite one after the other, and what is written of them."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from harpctl.console import Console
from harpctl.errors import ExitCode, HarpError
from harpctl.plotting import require_plot
from harpctl.testbed.bench.baseline import socket_baseline
from harpctl.testbed.bench.cores import UNWATCHED, OpenWatch, Watch
from harpctl.testbed.bench.hosts import Program
from harpctl.testbed.bench.measure import Step
from harpctl.testbed.bench.nccl_wheel import NEWEST
from harpctl.testbed.bench.plot import plot_speedups
from harpctl.testbed.bench.suite import SUITE, Work, chosen_rows, row_id
from harpctl.testbed.bench.suite_file import (
    Made,
    SuiteFile,
    differences,
    encode,
    made_here,
    open_file,
    write_file,
)
from harpctl.testbed.bench.suite_report import (
    markdown,
    require_markdown,
    row_text,
    shortfalls,
    sorted_rows,
    title_text,
    write_markdown,
)
from harpctl.testbed.bench.suite_run import Bench, Effort, lab_opener, run_work, steps_of, watched_runs

STANDARD_OUTPUT = "-"
WATCHED_SHARE = 1 / 6  # of the runs, whose bounds hold for all: a host that moves cores costs some minutes
GO_ON_AFTER = (ExitCode.FAILED,)  # other errors concern all works

Progress = Callable[[int], AbstractContextManager[Step]]
Chosen = list[tuple[Work, list[str]]]


@dataclasses.dataclass(frozen=True)
class SuiteOptions:
    """The options of the suite; `json` may be `-`."""

    is_quick: bool
    only: str | None
    json: str | None
    markdown: Path | None
    plot: Path | None

    def json_path(self) -> Path | None:
        """Return the file that holds the rows, from which a later call goes on."""
        return Path(self.json) if self.json and self.json != STANDARD_OUTPUT else None

    def check(self) -> Chosen:
        """Return the chosen rows. Raises HarpError for what could not be written at the end."""
        chosen = chosen_rows(self.only)
        if not chosen:
            names = "\n  ".join(dict.fromkeys(work.group for work in SUITE))
            raise HarpError(f"No row has {self.only!r} in its name.", f"Groups:\n  {names}", ExitCode.USAGE)
        if self.markdown:
            require_markdown(self.markdown)
        if self.plot:
            require_plot(self.plot)
        return chosen


def make_bench(
    perf: Path, plugin: Path, nccl_program: Callable[[], Path], cores: tuple[int, ...], *, is_quick: bool
) -> Bench:
    """Gather with what the works are measured, and fetch NCCL. Raises HarpError for what is missing."""
    set_names = sorted(name for name in os.environ if name.startswith(("HARP_", "NCCL_")))
    if set_names:
        raise HarpError(
            f"--all measures defaults, and {', '.join(set_names)} is set.", "Unset it.", ExitCode.USAGE
        )
    baseline, env = socket_baseline()
    return Bench(
        harp=Program(perf, plugin),
        socket=Program(perf, baseline, env),
        nccl_program=nccl_program() if platform.machine() == "x86_64" else None,
        nccl_library=Path(env["NCCL_LIB"]),
        cores=cores,
        open_place=lab_opener(cores),
        effort=Effort(is_quick),
    )


def run_suite(bench: Bench, options: SuiteOptions, open_watch: OpenWatch, progress: Progress) -> None:
    """Measure what the JSON lacks, and write all. Raises HarpError at the end if a row has no figures."""
    chosen, console = options.check(), Console(stderr=True)
    made = made_here(bench.harp.plugin, NEWEST, bench.cores, is_quick=options.is_quick)
    content = open_file(options.json_path(), made)
    todo = _left(chosen, content)
    _check_made(content, made, options, console, has_rows_left=bool(todo))
    if options.is_quick:
        open_watch = _open_no_watch
    try:
        failed = _measure(bench, todo, content, options.json_path(), open_watch, progress, console)
    except KeyboardInterrupt:
        if options.json_path():
            _say(console, f"Broken off: the same command goes on from {options.json}.")
        raise
    names = {row_id(work, name) for work, rows in chosen for name in rows}
    rows = [row for row in content.rows if f"{row.group}: {row.name}" in names]
    shown = SuiteFile(content.made, rows, content.core_figures, content.loads)
    _write(shown, options)
    missed = [row for row in sorted_rows(shown.rows, SUITE) if shortfalls(row)]
    console.print(f"{len(missed)} of {len(shown.rows)} rows miss their targets.", highlight=False)
    for row in missed:
        _say(console, row_text(row))
    if failed:
        raise HarpError(f"{len(failed)} works could not be measured.", "\n  ".join(failed))


def _open_no_watch(_runs: int) -> Watch:
    return UNWATCHED


def _check_made(
    content: SuiteFile, made: Made, options: SuiteOptions, console: Console, *, has_rows_left: bool
) -> None:
    """Raise HarpError where new rows would stand beside others that were made otherwise."""
    differing = differences(content.made, made)
    if not differing:
        return
    text = f"{options.json} has rows of another {', '.join(differing)}"
    if has_rows_left:
        raise HarpError(f"{text}.", "Remove it to measure anew, or name another file.", ExitCode.REFUSED)
    _say(console, f"{text}; it has all rows, so nothing is measured.")


def _left(chosen: Chosen, content: SuiteFile) -> Chosen:
    """Return the chosen rows that the file does not have."""
    have = {f"{row.group}: {row.name}" for row in content.rows}
    left = [(work, [name for name in names if row_id(work, name) not in have]) for work, names in chosen]
    return [(work, names) for work, names in left if names]


def _measure(
    bench: Bench,
    todo: Chosen,
    content: SuiteFile,
    path: Path | None,
    open_watch: OpenWatch,
    progress: Progress,
    console: Console,
) -> list[str]:
    """Measure works, and write the file after each; return what failed."""
    if not todo:
        return []
    failed: list[str] = []
    content.loads.append(round(os.getloadavg()[0], 1))
    count = sum(watched_runs(bench, work, names) for work, names in todo)
    watch = open_watch(math.ceil(count * WATCHED_SHARE))
    bench = dataclasses.replace(bench, watch=watch)
    earlier = list(content.core_figures)
    for number, (work, names) in enumerate(todo, 1):
        at = f"[{number}/{len(todo)}]"
        try:
            with progress(steps_of(bench, work, names)) as step:
                rows = run_work(bench, work, names, step)
        except HarpError as error:
            if error.exit_code not in GO_ON_AFTER:
                raise
            failed.append(f"{work.group}: {work.name}: {error}")
            _say(console, f"{at} {failed[-1]}")
            continue
        for row in rows:
            _say(console, f"{at} {row_text(row)}")
        content.rows += rows
        figures = watch.figures()
        content.core_figures = [*earlier, figures] if figures else earlier
        if path:
            write_file(path, content)
    return failed


def _write(content: SuiteFile, options: SuiteOptions) -> None:
    text = markdown(content, SUITE)
    if options.json == STANDARD_OUTPUT:
        sys.stdout.write(encode(content).decode())
    elif not options.markdown:
        sys.stdout.write(text)
    sys.stdout.flush()
    if options.markdown:
        write_markdown(options.markdown, text)
    if options.plot:
        plot_speedups(options.plot, title_text(content), sorted_rows(content.rows, SUITE))


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False, highlight=False)
