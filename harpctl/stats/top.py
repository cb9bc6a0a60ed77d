# SPDX-License-Identifier: Apache-2.0
"""`harpctl top`: a live table of the processes, sessions and paths of HARP, what is wrong first."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harpctl.command_line import argument, command, flag, json_option, option
from harpctl.console import OUT, make_table, print_json, print_table
from harpctl.host.host import Host
from harpctl.stats.files import Found, find_one, find_processes
from harpctl.stats.sample import ProcessRate, Sample, SessionRate, rate_text, sample_of

INTERVAL_S = 1.0
INTERVAL_MIN_S = 0.3  # engines write four times a second
WRONG_FROM = 20  # severity that is shown in red


def _milliseconds_text(ns: int) -> str:
    return f"{ns / 1e6:.3g}" if ns else "-"


def _kib_text(count: int) -> str:
    return f"{count >> 10}K"


def _problem_text(severity: int, problem: str) -> Text:
    return Text(problem, style="red" if severity >= WRONG_FROM else "dim")


def processes_table(sample: Sample) -> Table:
    """Show a line for each process."""
    heads = ("pid", "rank", "state", "out", "in", "sess", "streams", "wait", "lost", "resent", "problem")
    table = make_table(*heads, folded={"problem"})
    for one in sample.processes:
        words = (str(one.pid), one.rank, one.state, rate_text(one.out_bps), rate_text(one.in_bps))
        counts = (len(one.sessions), one.streams, one.outstanding, one.lost, one.resent)
        table.add_row(*map(Text, words), *map(str, counts), _problem_text(one.severity, one.problem))
    return table


def sessions_table(sessions: list[SessionRate]) -> Table:
    """Show a line for each session."""
    heads = (
        "pid",
        "peer",
        "state",
        "out",
        "in",
        "wait",
        "rtt ms",
        "low",
        "flight",
        "window",
        "lost %",
        "pto",
    )
    table = make_table(*heads, "problem", folded={"problem"})
    for one in sessions:
        words = (
            str(one.pid),
            f"{one.host}:{one.peer_pid}",
            one.state,
            rate_text(one.out_bps),
            rate_text(one.in_bps),
        )
        rest = (str(one.outstanding), _milliseconds_text(one.rtt_ns), _milliseconds_text(one.rtt_min_ns))
        sizes = (_kib_text(one.inflight_bytes), _kib_text(one.window_bytes))
        loss = (f"{one.lost_percent:.2g}", str(one.probe_timeouts))
        row = map(Text, (*words, *rest, *sizes, *loss))
        table.add_row(*row, _problem_text(one.severity, one.problem))
    return table


def paths_table(process: ProcessRate) -> Table:
    """Show a line for each path of a process that is not dormant."""
    heads = (
        "eni",
        "to",
        "kind",
        "state",
        "out",
        "in",
        "rtt ms",
        "low",
        "packet",
        "flight",
        "window",
        "lost %",
        "resent",
    )
    table = make_table(*heads, "pto")
    for path in (path for session in process.sessions for path in session.paths if path.state != "dormant"):
        words = (
            path.eni,
            path.address,
            path.kind,
            path.state,
            rate_text(path.tx_bps),
            rate_text(path.rx_bps),
        )
        rest = (_milliseconds_text(path.rtt_ns), _milliseconds_text(path.rtt_min_ns))
        sizes = (str(path.packet_bytes), _kib_text(path.inflight_bytes), _kib_text(path.window_bytes))
        loss = (f"{path.lost_percent:.2g}", str(path.resent), str(path.probe_timeouts))
        table.add_row(*map(Text, (*words, *rest, *sizes, *loss)))
    return table


def make_views(sample: Sample, *, with_paths: bool) -> list[Table | Text]:
    """Return what is shown of a sample: processes, sessions, with_paths those of its processes, notes."""
    sessions = [session for process in sample.processes for session in process.sessions]
    sessions.sort(key=lambda one: -one.severity)
    shown: list[Table | Text] = [processes_table(sample)]
    if not sample.processes:
        shown = [Text("No process here has HARP statistics.")]
    if sessions:
        shown += [Text(), sessions_table(sessions)]
    if with_paths:
        for process in sample.processes:
            shown += [Text(), paths_table(process)]
    if sample.ended:
        shown.append(Text(f"{sample.ended} more ended without closing their connections: `harpctl stats`"))
    shown += [Text(f"{unread.error} {unread.hint}", style="yellow") for unread in sample.unread]
    return shown


def _take_samples(host: Host, pid: int | None, interval_s: float) -> Iterator[Sample]:
    def read() -> Found:
        return find_processes(host) if pid is None else find_one(host, pid)

    before = read()
    while True:
        time.sleep(interval_s)
        after = read()
        yield sample_of(before, after, with_ended=pid is not None)
        before = after


def _print_sample(sample: Sample, *, with_paths: bool) -> None:
    for view in make_views(sample, with_paths=with_paths):
        if isinstance(view, Table):
            print_table(view)
        else:
            OUT.print(view)


def log_samples(samples: Iterator[Sample], count: int, *, with_paths: bool) -> None:
    """Write samples one below the other, each with its time; count of them, 0: all."""
    for number, sample in enumerate(samples, 1):
        OUT.print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sample.summary}", markup=False)
        _print_sample(sample, with_paths=with_paths)
        OUT.file.flush()
        if number == count:
            return


def watch_samples(samples: Iterator[Sample], count: int, *, with_paths: bool) -> None:
    """Show samples on the terminal's whole screen; count of them, 0: all."""
    with Live(console=OUT, screen=True, auto_refresh=False) as live:
        for number, sample in enumerate(samples, 1):
            live.update(Group(*make_views(sample, with_paths=with_paths)), refresh=True)
            if number == count:
                return


@command()
@argument("pid", metavar="[PID]", type=int, required=False, help="Show this process alone, with its paths.")
@option(
    "--interval",
    "interval_s",
    metavar="S",
    type=click.FloatRange(INTERVAL_MIN_S),
    default=INTERVAL_S,
    help="Seconds between two samples.",
)
@option("--count", metavar="N", default=0, help="End after N samples; 0: never.")
@flag("--batch", help="Write the samples one below the other, for a log.")
@json_option
def top(pid: int | None, *, interval_s: float, count: int, batch: bool, as_json: bool) -> None:
    """Show live the processes that use HARP and their sessions, problems first.

    Rates are those between two samples: out and in are bits of messages per second, `wait` counts the
    requests that NCCL or RCCL waits for, `pto` probe timeouts. Where standard output is no terminal, or
    with --json, one sample is printed.
    """
    samples = _take_samples(Host(), pid, interval_s)
    with_paths = pid is not None
    if as_json:
        print_json(next(samples))
    elif batch:
        log_samples(samples, count, with_paths=with_paths)
    elif OUT.is_terminal:
        watch_samples(samples, count, with_paths=with_paths)
    else:
        _print_sample(next(samples), with_paths=with_paths)
