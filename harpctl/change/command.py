# SPDX-License-Identifier: Apache-2.0
"""`harpctl rollback`: undo what harpctl did to a host."""

from __future__ import annotations

from pathlib import Path

import click

from harpctl.change.reverter import KeptPart
from harpctl.change.rollback import Listed, RollbackResult, list_transactions, roll_back
from harpctl.command_line import argument, command, dry_run_option, flag, json_option, root_option, yes_option
from harpctl.console import ConsoleProgress, NoProgress, escape_unprintable, print_json
from harpctl.errors import ExitCode
from harpctl.host.host import open_host


@command()
@argument("transaction", metavar="[ID]", default="", help="Undo this transaction and all later ones; else all.")
@flag("--list", "list_only", help="Show what could be undone.")
@dry_run_option
@flag("--force", help="Restore the original also of what was changed since.")
@yes_option
@json_option
@root_option
def rollback(
    transaction: str,
    *,
    list_only: bool,
    dry_run: bool,
    force: bool,
    yes: bool,
    as_json: bool,
    root: Path | None,
) -> None:
    """Undo what harpctl changed on this host, byte for byte.

    What somebody else changed since is left as it is, named, and can still be undone with --force; the exit
    code is 5 then. --list and --dry-run need no root.
    """
    del yes  # only -H asks
    host = open_host(root)
    if list_only:
        _show_list(list_transactions(host), as_json=as_json)
        return
    progress = NoProgress() if as_json or dry_run else ConsoleProgress()
    result = roll_back(host, since=transaction, force=force, dry_run=dry_run, progress=progress)
    if as_json:
        print_json(result)
    else:
        _show_result(result, root)
    if result.kept:
        raise click.exceptions.Exit(int(ExitCode.REFUSED))


def _print_text(text: str, *, err: bool = False) -> None:
    """Print what may hold others' names and bytes."""
    click.echo(escape_unprintable(text, keep="\n"), err=err)


def _show_list(transactions: tuple[Listed, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(transactions)
        return
    for transaction in transactions:
        _print_text(f"{transaction.id}  {transaction.what}  {transaction.status}  harpctl {transaction.version}")
        for step in transaction.steps:
            _print_text(f"    {step}")
    if not transactions:
        _print_text("There is nothing to undo.")


def _show_result(result: RollbackResult, root: Path | None) -> None:
    for reverted in result.reverted:
        for action in reverted.actions:
            _print_text(f"would {action}" if result.dry_run else f"{action}: done")
        if reverted.diff:
            _print_text(reverted.diff.rstrip())
    for note in result.notes:
        _print_text(f"note: {note}")
    for kept in result.kept:
        _show_kept(kept)
    if result.kept:
        again = "harpctl rollback --force" + (f" --root {root}" if root else "")
        _print_text(f"What was kept can still be undone. To restore the saved originals: {again}", err=True)
    elif not result.reverted:
        _print_text("There is nothing to undo.")


def _show_kept(kept: KeptPart) -> None:
    _print_text(f"kept {kept.path or kept.step}: {kept.reason}.", err=True)
    if kept.saved:
        _print_text(f"  Saved original: {kept.saved}. From it to what is there now:", err=True)
    for line in kept.diff.splitlines():
        _print_text(f"  {line}", err=True)
