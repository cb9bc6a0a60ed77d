# SPDX-License-Identifier: Apache-2.0
"""Apply a plan as one transaction: afterwards all of it holds, or nothing was changed.

Before a step is done, what it replaces is saved and its undo is recorded in the journal. A step that fails
makes apply_plan undo everything at once; a harpctl that is killed leaves an interrupted transaction, which the
next one undoes before it looks at the host (rollback.recover_interrupted). It is undone, not completed, because
a plan is made of facts, and these may have changed since.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from typing import Protocol

from harpctl.change import store
from harpctl.change.executor import Executor, written_paths
from harpctl.change.journal import Done, Journal, Transaction
from harpctl.change.os_errors import harp_error_of, require_root, translate_os_errors
from harpctl.change.rollback import kept_text, undo_now
from harpctl.change.steps import Group, Plan, Run, WriteFile, drop_held_steps
from harpctl.console import Progress
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host

BLOCK_BYTES = 4096  # what a file takes at least
ROOM_BYTES = 64 << 10  # room for the journal and directories, beside the files themselves


class Guard(Protocol):
    """Watches steps that may cut the host off, and undoes them if nobody confirms.

    Its rollback timer is a process of its own, started with exec (a fork would inherit the journal's lock). A
    transaction counts as interrupted until it is done, so at its deadline the timer only kills the harpctl
    that holds /var/lib/harp/lock, if any still does, and calls rollback.recover_interrupted(host).
    """

    def start_timer(self, transaction: str, host: Host) -> None:
        """Start the timer, before the first guarded step. Raises HarpError: nothing guarded is done."""

    def await_confirmation(self, progress: Progress) -> bool:
        """Wait, after the last guarded step of a group, until the host is known to be reachable.

        True: confirmed, and the timer is gone. False: not confirmed; apply_plan undoes everything.
        """

    def end_timer(self) -> None:
        """End the timer; apply_plan has undone everything itself. Also called when none was started."""


def apply_plan(plan: Plan, host: Host, *, what: str, progress: Progress, guard: Guard | None = None) -> str:
    """Carry out what of a plan does not hold yet; return the transaction's id, "" when all holds already.

    Call rollback.recover_interrupted before the facts are gathered that the plan is made of. Raises HarpError,
    and the host is as before then; the message names what could not be undone.
    """
    plan = drop_held_steps(plan, host)
    if plan.is_empty:
        return ""
    require_root(host)
    with translate_os_errors(host):
        _check_plan(plan, host, guard)
        store.make_folder(host)
        with store.hold_lock(host):
            journal = Journal(host)
            journal.refuse_interrupted()
            try:
                transaction = _begin_transaction(journal, host, plan, what)
            except OSError:
                journal.drop_unused()
                store.remove_folder(host)
                raise
            _carry_out(plan, host, journal, transaction, progress, guard)
            return transaction.id


def _carry_out(
    plan: Plan,
    host: Host,
    journal: Journal,
    transaction: Transaction,
    progress: Progress,
    guard: Guard | None,
) -> None:
    executor = Executor(host, journal, transaction, progress)
    try:
        for group in plan.groups:
            with progress.working(group.name):
                if group.guarded and guard is not None:
                    guard.start_timer(transaction.id, host)
                    executor.run_group(group)
                    _await_confirmation(guard, group, progress)
                else:
                    executor.run_group(group)
        transaction.add(Done())
    except (HarpError, OSError, KeyboardInterrupt) as error:
        problem = _take_back(host, journal, transaction, error, progress)
        if guard is not None:
            guard.end_timer()
        raise problem from error
    except Exception as error:  # a defect of ours: nothing is left half done nevertheless
        _take_back(host, journal, transaction, error, progress)
        raise
    with contextlib.suppress(OSError):
        host.remove(store.RESERVE)


def _await_confirmation(guard: Guard, group: Group, progress: Progress) -> None:
    if not guard.await_confirmation(progress):
        raise HarpError(
            f"{group.name}: nobody confirmed in time that this host can still be reached.",
            "Look at the network settings of the plan (--dry-run).",
        )


def _take_back(
    host: Host, journal: Journal, transaction: Transaction, error: BaseException, progress: Progress
) -> HarpError:
    """Undo what was done of a transaction that failed; return the error to raise."""
    if isinstance(error, OSError):
        error = harp_error_of(error, host)
    elif not isinstance(error, HarpError):
        error = HarpError("Interrupted.", "", ExitCode.INTERRUPTED)
    with contextlib.suppress(OSError):
        host.remove(store.RESERVE)
    report = undo_now(host, journal, transaction, progress)
    if not report.kept:
        with contextlib.suppress(OSError):
            store.remove_folder(host)
        return HarpError(f"{error.message} Nothing was changed.", error.hint, error.exit_code)
    return HarpError(
        f"{error.message} Not everything could be undone: {kept_text(report.kept)}.",
        f"{error.hint} Then `harpctl rollback` retries the rest.".strip(),
        error.exit_code,
    )


def _begin_transaction(journal: Journal, host: Host, plan: Plan, what: str) -> Transaction:
    """Begin a transaction, and take the room on the disk that undoing it may need."""
    replaced = sum(
        _file_bytes(host, path) for group in plan.groups for step in group.steps for path in written_paths(step)
    )
    host.write_file(store.RESERVE, os.urandom(replaced + ROOM_BYTES), 0o600)
    return journal.begin(what)


def _check_plan(plan: Plan, host: Host, guard: Guard | None) -> None:
    """Find what would fail, before anything is changed. Raises HarpError and OSError."""
    room: dict[str, int] = {store.JOURNAL: 2 * ROOM_BYTES}
    for group in plan.groups:
        if group.guarded and guard is None and host.runs_commands:
            raise HarpError(
                f"{group.name}: these steps may cut the host off, and nothing guards them.",
                "This is a defect of harpctl. Please report it.",
            )
        for step in group.steps:
            if isinstance(step, Run) and step.argv and not host.runs_commands:
                raise HarpError(
                    f"`{shlex.join(step.argv)}` was to run for a directory tree.",
                    "This is a defect of harpctl: with --root no command may run. Please report it.",
                )
            for path in written_paths(step):
                host.resolve_links(path)  # raises for a link that leads nowhere but to itself
                new = len(step.data) if isinstance(step, WriteFile) else 0
                room[path] = room.get(path, 0) + new + BLOCK_BYTES
                room[store.JOURNAL] += 2 * (_file_bytes(host, path) + BLOCK_BYTES)  # the copy, and the reserve
    _check_room(host, room)


def _check_room(host: Host, room: dict[str, int]) -> None:
    wanted: dict[int, int] = {}
    for path, size in room.items():
        found = host.file_system(path)
        if found is None:
            continue
        device, system = found
        if system.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        wanted[device] = wanted.get(device, 0) + size
        free = system.f_bfree if os.geteuid() == 0 else system.f_bavail
        if system.f_blocks and free * system.f_frsize < wanted[device]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _file_bytes(host: Host, path: str) -> int:
    status = host.stat(host.resolve_links(path))
    return status.st_size if status is not None else 0
