# SPDX-License-Identifier: Apache-2.0
"""`harpctl trace`: what the last events of a process were, of a running one, a killed one, or a dump."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harpctl import lab
from harpctl.command_line import FILE, argument, command, flag, json_option, option
from harpctl.console import OUT, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.stats.files import find_one
from harpctl.trace.history import History, HistoryEvent, counts_of, describe_losses, history_of
from harpctl.trace.rings import Recording, read_recording
from harpctl.trace.save import dump_of

DUMP_HINT = "Processes write dumps into HARP_DUMP_DIR; `harpctl trace PID` reads a running one."


def _read_recording(host: Host, source: str) -> Recording:
    path = find_one(host, int(source)).processes[0].file if source.isdecimal() else str(Path(source).absolute())
    if not host.exists(path):
        raise HarpError(f"There is no file {source}.", DUMP_HINT, ExitCode.MISSING)
    file = host.open_file(path)
    if file is None:
        raise HarpError(f"{source} can't be read.", "Run it as root, or as its owner.", ExitCode.REFUSED)
    with file:
        return read_recording(file, source)


def _clock_time(unix_ns: int) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(unix_ns // 10**9))}.{unix_ns // 1000 % 10**6:06d}"


def _recording_title(recording: Recording) -> str:
    page = recording.page
    title = f"{page.host} process {page.pid}, HARP {page.version}, {len(recording.events)} events"
    if recording.why:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(recording.dumped_unix_ns // 10**9))
        title += f", dump of {moment}: {recording.why}"
    return title


def _choose_events(history: History, *, everything: bool, last: int) -> list[HistoryEvent]:
    shown = [entry for entry in history.events if everything or entry.event.kind.part != "FLOW"]
    return shown[-last:] if last else shown


def _print_history(history: History, *, everything: bool, last: int) -> None:
    for side in history.sides:
        OUT.print(_recording_title(side.recording), style="bold", markup=False)
        if side.recording.cut:
            OUT.print("This file is cut off; what is left of it follows.", style="yellow")
    if history.clock:
        OUT.print(history.clock.describe(*(side.title() for side in history.sides)), markup=False)
    if not history.events:
        OUT.print("Nothing was recorded.")
        return
    shown = _choose_events(history, everything=everything, last=last)
    width = max((len(history.name_of(entry)) for entry in shown), default=0)
    first = history.sides[0].recording
    for entry in shown:
        moment = _clock_time(first.unix_ns(entry.at_ns))
        OUT.print(f"{moment}  {history.name_of(entry):{width}}  {history.text_of(entry)}", markup=False)
    hidden = len(history.events) - len(shown)
    if hidden and not everything:
        OUT.print(f"{hidden} events of what was sent and acknowledged, or earlier, are left out: --all, --last 0.")
    title = list(describe_losses(history))
    OUT.print("\nNothing recorded was lost." if not title else "", style="bold")
    for sentence in title:
        OUT.print(sentence, markup=False)


def _make_document(history: History) -> dict[str, object]:
    return {
        "sides": [
            {
                "host": side.recording.page.host,
                "pid": side.recording.page.pid,
                "version": side.recording.page.version,
                "why": side.recording.why,
                "dumped_unix_ns": side.recording.dumped_unix_ns,
                "cut": side.recording.cut,
                "sessions": list(side.sessions.values()),
            }
            for side in history.sides
        ],
        "clock": history.clock,
        "paths": counts_of(history),
        "events": [
            {
                "unix_ns": history.sides[0].recording.unix_ns(entry.at_ns),
                "side": entry.side,
                "session": entry.mark,
                "event": entry.event.kind.name,
                "path": entry.event.path,
                "number": entry.event.number,
                "count": entry.event.count,
                "stream": entry.event.stream,
                "a": entry.event.a,
                "b": entry.event.b,
                "text": entry.event.text(),
            }
            for entry in history.events
        ],
    }


@command()
@argument("source", metavar="PID|FILE", help="A process here, or a dump.")
@argument("other", metavar="[PID|FILE]", required=False, help="The other end, to be merged on one clock.")
@flag("--all", "everything", help="Print also each superframe and acknowledgement.")
@option("--last", metavar="N", type=click.IntRange(0), default=0, help="Print the last N events; 0: all.")
@option(
    "--plot",
    "picture",
    metavar="FILE",
    type=FILE,
    help="Draw packet numbers and windows over time: needs the lab.",
)
@option(
    "--span",
    "span_ms",
    metavar="MS",
    type=click.FloatRange(0),
    default=0.0,
    help="Draw the last MS milliseconds; 0: all.",
)
@option("--save", metavar="FILE", type=FILE, help="Keep the process's events as a dump.")
@json_option
def trace(
    source: str,
    other: str | None,
    *,
    everything: bool,
    last: int,
    picture: Path | None,
    span_ms: float,
    save: Path | None,
    as_json: bool,
) -> None:
    """Show the last events that a process has recorded: losses, silent paths, failures.

    A running process is read without disturbing it. Where a session fails, or NCCL or RCCL waits for
    long, the process leaves a dump. The recordings of both ends are merged on one clock.
    docs/reference/trace.md explains events and files.
    """
    host = Host()
    if picture:
        drawing = lab.import_part("trace_plot", "trace --plot")
        drawing.require_plot(picture)
    recordings = [_read_recording(host, word) for word in (source, other) if word is not None]
    if save:
        _save_recording(host, source, save)
    history = history_of(recordings)
    if picture:
        drawing.plot(picture, history, span_ms)
    if as_json:
        print_json(_make_document(history))
    else:
        _print_history(history, everything=everything, last=last)
    if any(recording.cut for recording in recordings):
        raise click.exceptions.Exit(int(ExitCode.WRONG_DATA))


def _save_recording(host: Host, source: str, to: Path) -> None:
    if not source.isdecimal():
        raise HarpError("--save keeps what a process has recorded.", "Copy the file instead.", ExitCode.USAGE)
    file = host.open_file(find_one(host, int(source)).processes[0].file)
    if file is None:
        raise HarpError(f"Process {source} has ended.", DUMP_HINT, ExitCode.MISSING)
    with file:
        data = dump_of(file, source)
    try:
        host.write_file(str(to.absolute()), data, 0o600)
    except OSError as error:
        raise HarpError(f"{to} can't be written: {error.strerror}.", "Is there room?") from None
