# SPDX-License-Identifier: Apache-2.0
"""Roll back: undo what the journal holds, the newest transaction and the last step first.

What somebody else changed since is left as it is and stays in the journal; everything else is undone
nevertheless. When nothing is left to undo, the journal's folder goes too.
"""

from __future__ import annotations

import contextlib

import msgspec

from harpctl.change import store
from harpctl.change.journal import Ended, Journal, Transaction
from harpctl.change.os_errors import require_root, translate_os_errors
from harpctl.change.reverter import KeptPart, RevertedStep, Reverter
from harpctl.console import Progress
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host


class RollbackResult(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of a rollback, done or planned."""

    dry_run: bool = False
    undone: tuple[str, ...] = ()  # ids of transactions that are undone wholly
    reverted: tuple[RevertedStep, ...] = ()
    kept: tuple[KeptPart, ...] = ()
    notes: tuple[str, ...] = ()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that can be undone."""

    id: str
    what: str
    time: str
    version: str
    status: str
    steps: tuple[str, ...]  # those that are not undone, in the order in which they were done


def list_transactions(host: Host) -> tuple[Listed, ...]:
    """Return all transactions, the oldest first. Needs no root. Raises HarpError for a damaged journal."""
    return tuple(
        Listed(
            id=transaction.id,
            what=transaction.begin.what,
            time=transaction.begin.time,
            version=transaction.begin.version,
            status=transaction.status.value,
            steps=tuple(before.title for before in reversed(transaction.to_undo())),
        )
        for transaction in Journal(host).transactions()
    )


def roll_back(
    host: Host, *, since: str = "", force: bool = False, dry_run: bool = False, progress: Progress
) -> RollbackResult:
    """Undo all transactions, or one and all later ones.

    `since` is an id, the number it begins with, or "". Raises HarpError before anything is undone: no root,
    no such transaction, another harpctl at work, a journal that this version can't read.
    """
    journal = Journal(host)
    if dry_run:
        return _undo_transactions(
            host, journal, _choose_transactions(journal.transactions(), since), force, dry_run, progress
        )
    if not store.is_there(host):
        _choose_transactions([], since)
        return RollbackResult()
    require_root(host)
    with translate_os_errors(host):
        if not host.is_dir(store.HOME):
            store.remove_folder(host)
            return RollbackResult()
        with store.hold_lock(host):
            chosen = _choose_transactions(journal.transactions(), since)
            result = _undo_transactions(host, journal, chosen, force, dry_run, progress)
            store.remove_folder(host)
    return result


def recover_interrupted(host: Host, *, progress: Progress) -> RollbackResult:
    """Undo what was interrupted, before a host is looked at to plan for it.

    Every command that applies plans calls it first: a plan made for a host that is half changed would be
    wrong after its undoing. It does nothing, and needs no root, when nothing was interrupted. Raises
    HarpError when something of it was changed by somebody else since; called again, it leaves that alone.
    """
    if not any(transaction.is_open for transaction in Journal(host).transactions()):
        return RollbackResult()
    require_root(host)
    with translate_os_errors(host), store.hold_lock(host):
        journal = Journal(host)
        chosen = [transaction for transaction in journal.transactions() if transaction.is_open]
        progress.print("An earlier run was interrupted; it is undone first.")
        result = _undo_transactions(host, journal, chosen, False, False, progress)
        store.remove_folder(host)
    if result.kept:
        raise HarpError(
            f"An earlier run was interrupted and can't be undone wholly: {kept_text(result.kept)}.",
            "`harpctl rollback --force` restores the saved originals; the same command once more leaves "
            "what was changed as it is.",
            ExitCode.REFUSED,
        )
    return result


def undo_now(host: Host, journal: Journal, transaction: Transaction, progress: Progress) -> RollbackResult:
    """Undo one transaction under a lock that is held already; apply does so when a step fails."""
    return _undo_transactions(host, journal, [transaction], False, False, progress)


def kept_text(kept: tuple[KeptPart, ...]) -> str:
    """Return what was not undone in one line."""
    return "; ".join(": ".join(filter(None, [item.path or item.step, item.reason])) for item in kept)


def _choose_transactions(transactions: list[Transaction], since: str) -> list[Transaction]:
    if not since:
        return transactions
    for place, transaction in enumerate(transactions):
        if since == transaction.id or since.zfill(4) == transaction.id.partition("-")[0]:
            return transactions[place:]
    raise HarpError(
        f"There is no transaction {since} in the journal.",
        "`harpctl rollback --list` shows those there are.",
        ExitCode.USAGE,
    )


def _undo_transactions(
    host: Host,
    journal: Journal,
    transactions: list[Transaction],
    force: bool,
    dry_run: bool,
    progress: Progress,
) -> RollbackResult:
    reverter = Reverter(host, journal, force=force, dry_run=dry_run)
    for transaction in reversed(transactions):
        with progress.working(f"undoing {transaction.begin.what} {transaction.id}"):
            if not dry_run:
                with contextlib.suppress(OSError):
                    journal.repair(transaction)
            for before in transaction.to_undo():
                reverter.undo(transaction, before)
    reverter.run_again()
    undone = []
    for transaction in reversed(transactions):
        left = {kept.transaction for kept in reverter.kept}
        if transaction.id not in left:
            undone.append(transaction.id)
        if dry_run:
            continue
        if transaction.id not in left:
            journal.forget(transaction)
        else:
            with contextlib.suppress(OSError):  # a full disk: the next rollback tries again
                transaction.add(Ended())
    if not dry_run:
        journal.drop_unused()
    return RollbackResult(
        dry_run=dry_run,
        undone=tuple(undone),
        reverted=tuple(reverter.reverted),
        kept=tuple(reverter.kept),
        notes=tuple(reverter.notes),
    )
