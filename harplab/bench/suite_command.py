# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab suite`: all works of the suite one after the other, and what is written of them."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from harpctl.command_line import FILE, command
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harplab.bench.cores import (
    Watch,
    available_cores,
    core_siblings,
    near_cores,
    parse_cores,
    read_latency_ns,
)
from harplab.bench.nccl_command import PROGRAM
from harplab.bench.nccl_wheel import NEWEST, socket_baseline
from harplab.bench.options import PERF, PLOT, PLUGIN, cores_option, find_program, watch_of
from harplab.bench.plot import plot_speedups
from harplab.bench.report import Output, show_progress
from harplab.bench.suite import SUITE, Work, chosen_rows, row_id
from harplab.bench.suite_file import (
    Made,
    SuiteFile,
    made_here,
    name_differences,
    open_file,
    write_file,
)
from harplab.bench.suite_report import (
    find_shortfalls,
    require_markdown,
    row_text,
    sorted_rows,
    title_text,
    write_markdown,
    write_results,
)
from harplab.bench.suite_run import Bench, Effort, lab_opener, run_work, steps_of, watched_runs
from harplab.grouped import declare_option, group_options
from harplab.perf.hosts import Program
from harplab.perf.measure import Step
from harplab.plotting import require_plot

RANKS_MAX = 4
WATCHED_SHARE = 1 / 6  # the share of runs whose bounds hold for all: a host that moves cores costs some minutes
GO_ON_AFTER = (ExitCode.FAILED,)  # other errors concern all works

Progress = Callable[[int], AbstractContextManager[Step]]
Chosen = list[tuple[Work, list[str]]]


@dataclasses.dataclass(frozen=True)
class SuiteOptions:
    """The options of the suite."""

    is_quick: bool = declare_option(False, "--quick", help="Single and short runs, not made again; a few minutes.")
    only: str | None = declare_option(
        None, metavar="TEXT", help="Only rows with this text in their group or name."
    )
    results: Path | None = declare_option(
        None,
        metavar="FILE",
        type=FILE,
        help="Keep the rows in FILE; a second call goes on where the first ended.",
    )
    markdown: Path | None = declare_option(
        None, type=FILE, help="Write the table to a new FILE, or between the marks of one that has them."
    )
    plot: Path | None = declare_option(None, **PLOT)
    as_json: bool = declare_option(False, "--json", help="Print the result as JSON.")

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
            f"The suite measures defaults, and {', '.join(set_names)} is set.", "Unset it.", ExitCode.USAGE
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


def run_suite(bench: Bench, options: SuiteOptions, open_watch: Callable[[int], Watch], progress: Progress) -> None:
    """Measure what the JSON lacks, and write all. Raises HarpError at the end if a row has no figures."""
    chosen, console = options.check(), Console(stderr=True)
    made = made_here(bench.harp.plugin, NEWEST, bench.cores, is_quick=options.is_quick)
    content = open_file(options.results, made)
    todo = _rows_left(chosen, content)
    _check_made(content, made, options, console, has_rows_left=bool(todo))
    try:
        failed = _measure_rows(bench, todo, content, options.results, open_watch, progress, console)
    except KeyboardInterrupt:
        if options.results:
            _print_text(console, f"Broken off: the same command goes on from {options.results}.")
        raise
    names = {row_id(work, name) for work, rows in chosen for name in rows}
    rows = [row for row in content.rows if row.id in names]
    shown = SuiteFile(content.made, rows, content.core_figures, content.loads)
    _write_suite(shown, options)
    missed = [row for row in sorted_rows(shown.rows, SUITE) if find_shortfalls(row)]
    console.print(f"{len(missed)} of {len(shown.rows)} rows miss their targets.", highlight=False)
    for row in missed:
        _print_text(console, row_text(row))
    if failed:
        Output(None, options.as_json).fail(
            HarpError(f"{len(failed)} works could not be measured.", "\n  ".join(failed))
        )


def _check_made(
    content: SuiteFile, made: Made, options: SuiteOptions, console: Console, *, has_rows_left: bool
) -> None:
    """Raise HarpError where new rows would stand beside others that were made otherwise."""
    differing = name_differences(content.made, made)
    if not differing:
        return
    text = f"{options.results} has rows of another {', '.join(differing)}"
    if has_rows_left:
        raise HarpError(f"{text}.", "Remove it to measure anew, or name another file.", ExitCode.REFUSED)
    _print_text(console, f"{text}; it has all rows, so nothing is measured.")


def _rows_left(chosen: Chosen, content: SuiteFile) -> Chosen:
    """Return the chosen rows that the file does not have."""
    have = {row.id for row in content.rows}
    left = [(work, [name for name in names if row_id(work, name) not in have]) for work, names in chosen]
    return [(work, names) for work, names in left if names]


def _measure_rows(
    bench: Bench,
    todo: Chosen,
    content: SuiteFile,
    path: Path | None,
    open_watch: Callable[[int], Watch],
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
            _print_text(console, f"{at} {failed[-1]}")
            continue
        for row in rows:
            _print_text(console, f"{at} {row_text(row)}")
        content.rows += rows
        figures = watch.figures()
        content.core_figures = [*earlier, figures] if figures else earlier
        if path:
            write_file(path, content)
    return failed


def _write_suite(content: SuiteFile, options: SuiteOptions) -> None:
    text = write_results(content, SUITE)
    if options.as_json:
        print_json(content)
    elif not options.markdown:
        sys.stdout.write(text)
    sys.stdout.flush()
    if options.markdown:
        write_markdown(options.markdown, text)
    if options.plot:
        plot_speedups(options.plot, title_text(content), sorted_rows(content.rows, SUITE))


def _print_text(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False, highlight=False)


@command()
@group_options(options=SuiteOptions)
@cores_option
def suite(*, options: SuiteOptions, cores: str | None) -> None:
    """Measure all kinds of work beside NCCL's sockets, in half an hour.

    Ranks keep to two cores near each other, or to those that --cores names.
    """
    options.check()
    program = find_program(None, PERF)
    pinned = (
        parse_cores(cores, available_cores())
        if cores is not None
        else near_cores(available_cores(), RANKS_MAX, lambda a, b: read_latency_ns(program, (a, b)), core_siblings)
    )
    console = Console(stderr=True)
    bench = make_bench(
        program,
        find_program(None, PLUGIN),
        lambda: find_program(None, PROGRAM),
        pinned,
        is_quick=options.is_quick,
    )
    watched = () if options.is_quick else pinned
    run_suite(bench, options, lambda runs: watch_of(watched, runs), lambda total: show_progress(console, total))
