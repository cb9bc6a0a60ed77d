# SPDX-License-Identifier: Apache-2.0
"""`harpctl stats`: what the statistics files of running jobs hold."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from harpctl.command_line import argument, command, flag, json_option
from harpctl.console import OUT, make_table, print_json, print_table
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.stats.files import Found, Process, fields_of, find_one, find_processes
from harpctl.stats.layout import Row
from harpctl.stats.nested import make_document

STYLES = {"running": "green", "gone": "dim"}
HIDDEN = {"index", "id", "session", "eni", "engine", "path_first", "eni_first", "eni_count"}


def warn_unread(found: Found) -> None:
    """Print a line for each file that could not be read."""
    for unread in found.unread:
        OUT.print(f"{unread.error} {unread.hint}", style="yellow", markup=False)


def _processes_table(found: Found) -> Table:
    heads = ("pid", "state", "rank", "engines", "sessions", "streams", "version", "command")
    table = make_table(*heads, folded={"command"})
    for process in found.processes:
        counts = [str(len(process.page.tables.get(name, []))) for name in ("engine", "session", "stream")]
        state = Text(process.state, style=STYLES.get(process.state, "yellow"))
        words = (process.rank, *counts, process.page.version, process.command)
        table.add_row(str(process.pid), state, *(Text(word) for word in words))
    return table


def _rows_table(rows: list[Row]) -> Table:
    """Show the entries of a table with the fields that are not 0 or empty in all of them."""
    names = [name for name in rows[0] if name not in HIDDEN and any(row.get(name) for row in rows)]
    if len(rows) == 1:
        table = make_table()
        for name in names:
            table.add_row(name, Text(str(rows[0][name])))
        table.show_header = False
        return table
    table = make_table(*names)
    for row in rows:
        table.add_row(*(Text(str(row.get(name, ""))) for name in names))
    return table


def _show_process(process: Process) -> None:
    words = [f"process {process.pid}", process.state, f"HARP {process.page.version}"]
    OUT.print(", ".join([*words, *([f"rank {process.rank}"] if process.rank else [])]), markup=False)
    for name, rows in process.page.tables.items():
        missing = process.page.missing.get(name, 0)
        if rows:
            OUT.print(f"\n{name}", style="bold", markup=False)
            print_table(_rows_table(rows), wide=True)
        if missing:
            OUT.print(f"{missing} more of the table {name} had no room in the file.", style="yellow")


def _show_meanings(host: Host, found: Found) -> None:
    """Show the fields of all tables, as the first file that has some describes them."""
    kinds = {"C": "{}", "G": "gauge, {}", "T": "text"}
    table = make_table("table", "field", "unit", "meaning", folded={"meaning"})
    for name, fields in next(filter(None, (fields_of(host, one) for one in found.processes)), {}).items():
        for field in fields:
            unit = kinds[field.kind].format(field.unit).removesuffix(", ")
            table.add_row(name, field.name, unit, Text(field.text))
    print_table(table)


@command()
@argument("pid", metavar="[PID]", type=int, required=False, help="Show all of this process.")
@flag("--fields", help="Show what each field means.")
@json_option
def stats(pid: int | None, *, fields: bool, as_json: bool) -> None:
    """Show the statistics of the processes that use HARP.

    Processes of other users are shown to root. docs/reference/statistics.md explains the file.
    """
    if fields and as_json:
        raise HarpError("--fields has no JSON.", "Leave out --json.", ExitCode.USAGE)
    host = Host()
    found = find_processes(host) if pid is None else find_one(host, pid)
    if fields and found.processes:
        _show_meanings(host, found)
    elif as_json:
        print_json(make_document(found))
    elif pid is not None:
        for process in found.processes:
            _show_process(process)
    elif found.processes:
        print_table(_processes_table(found))
    elif not found.unread:
        OUT.print("No process here has HARP statistics.")
    if not as_json:
        warn_unread(found)
    if found.unread:
        raise click.exceptions.Exit(found.exit_code())
