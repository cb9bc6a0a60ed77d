# SPDX-License-Identifier: Apache-2.0
"""The reverter undoes steps one by one and reports what it found: a file that somebody changed stays.

A path that now holds `ours` or `was` may be replaced; anything else is foreign. An interrupted undo is
repeated, so everything here is idempotent.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import stat

import msgspec

from harpctl.change.diff import file_diff
from harpctl.change.journal import After, Before, Journal, Left, Transaction, Undoing, Undone, boot_id
from harpctl.change.state import Absent, File, State, read_state, restore_state, same_content
from harpctl.change.store import BLOBS
from harpctl.change.undo import (
    MoveBack,
    PutBack,
    PutOutputBack,
    RemoveFolder,
    RunBack,
    SetBack,
    SetSizesBack,
    Undo,
)
from harpctl.errors import HarpError
from harpctl.host.host import Host

CLOCK_SLACK_S = 3.0  # FAT stamps files to two seconds


class RevertedStep(msgspec.Struct, kw_only=True):
    """A step that was undone, or would be."""

    transaction: str
    step: str
    actions: list[str] = []
    diff: str = ""


class KeptPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a step that was not undone."""

    transaction: str
    step: str
    reason: str
    path: str = ""
    saved: str = ""  # the path of the original's bytes
    diff: str = ""  # from the original to what is there now


class _Foreign(Exception):  # noqa: N818 - it never leaves this file
    """A path holds what is neither ours nor the original."""

    def __init__(self, path: str, reason: str, was: State | None = None) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.was = was


@dataclasses.dataclass
class _StepUndo:
    """The state of undoing one step."""

    before: Before
    after: After | None
    foreign: tuple[str, ...]
    may_be_undone: bool  # so that a command that finds nothing to undo is no failure
    again: list[PutOutputBack] = dataclasses.field(default_factory=list)


class Reverter:
    """Undoes steps of one host. `force` also replaces what somebody changed; `dry_run` only reports."""

    def __init__(self, host: Host, journal: Journal, *, force: bool = False, dry_run: bool = False) -> None:
        self._host = host
        self._journal = journal
        self._force = force
        self._dry_run = dry_run
        self._imagined: dict[str, tuple[State, bytes]] = {}  # what a dry run would have put there
        self._again: dict[tuple[str, ...], list[tuple[Transaction, Before, float]]] = {}
        self.reverted: list[RevertedStep] = []
        self.kept: list[KeptPart] = []
        self.notes: list[str] = []

    def undo(self, transaction: Transaction, before: Before) -> None:
        """Undo one step, as far as possible; record and report the outcome."""
        after = transaction.after(before.step)
        begun = transaction.undo_begun(before.step)
        retried = begun is not None
        try:
            foreign = begun.foreign if begun else self._find_foreign(before, after)
        except (HarpError, OSError) as error:
            self._keep_foreign(transaction, before, [_Foreign("", _reason_of(error))])
            return
        self._write_record(transaction, Undoing(step=before.step, foreign=foreign))
        step = _StepUndo(before, after, foreign, retried or after is None or self._was_rebooted(before))
        reverted = RevertedStep(transaction=transaction.id, step=before.title)
        problems = []
        for undo in before.undo:
            try:
                self._do_undo(undo, step, reverted)
            except _Foreign as problem:
                problems.append(problem)
            except (HarpError, OSError) as error:
                problems.append(_Foreign(_path_of(undo), _reason_of(error)))
        if problems:
            self._keep_foreign(transaction, before, problems)
            return
        self.reverted.append(reverted)
        for command in step.again:
            self._again.setdefault(command.again, []).append((transaction, before, command.timeout_s))
        if not step.again:
            self._write_record(transaction, Undone(step=before.step))

    def run_again(self) -> None:
        """Rebuild what could not be put back, now that what it is built from has been."""
        for argv, waiting in self._again.items():
            problem = self._run_command(argv, max(timeout_s for _t, _b, timeout_s in waiting))
            for transaction, before, _timeout_s in waiting:
                if problem:
                    self._keep_foreign(transaction, before, [_Foreign("", problem)])
                else:
                    self._write_record(transaction, Undone(step=before.step))
        self._again.clear()

    # ---- the primitives ----

    @functools.singledispatchmethod
    def _do_undo(self, undo: Undo, step: _StepUndo, reverted: RevertedStep) -> None:
        raise AssertionError(undo, step, reverted)

    @_do_undo.register
    def _put_back(self, undo: PutBack, _step: _StepUndo, reverted: RevertedStep) -> None:
        now, _data = self._read_imagined(undo.path)
        renamed = self._find_renamed(undo.path, undo.ours) if isinstance(now, Absent) else ""
        if renamed:
            self._put_state(renamed, Absent(), reverted)
        if self._force or renamed or same_content(now, undo.ours) or same_content(now, undo.was):
            self._put_state(undo.path, undo.was, reverted)
        else:
            raise _Foreign(undo.path, "somebody changed it since", undo.was)

    @_do_undo.register
    def _move_back(self, undo: MoveBack, _step: _StepUndo, reverted: RevertedStep) -> None:
        here, there = self._read_imagined(undo.path), self._read_imagined(undo.to)
        if isinstance(here[0], Absent):
            if isinstance(there[0], Absent) and (renamed := self._find_renamed(undo.path, undo.what)):
                self._move_back(msgspec.structs.replace(undo, path=renamed), _step, reverted)
                return
            if isinstance(there[0], Absent):
                raise _Foreign(undo.path, f"it is gone, and can't be moved back to {undo.to}")
            return  # it is back already
        if not isinstance(there[0], Absent):
            raise _Foreign(undo.path, f"it can't be moved back: {undo.to} exists again")
        reverted.actions.append(f"move {undo.path} back to {undo.to}")
        if self._dry_run:
            self._imagined |= {undo.to: here, undo.path: (Absent(), b"")}
        else:
            self._host.rename(undo.path, undo.to)

    @_do_undo.register
    def _set_back(self, undo: SetBack, step: _StepUndo, reverted: RevertedStep) -> None:
        now = self._host.read_text(undo.path)
        is_set_again = now is not None and now.strip() == undo.ours.strip()  # by what each boot does
        if self._was_rebooted(step.before) and not is_set_again:
            self.notes.append(f"{undo.path}: what was set is gone since the host was booted again.")
            return
        if now is None or now == undo.was:
            return
        if undo.path in step.foreign and not self._force:
            raise _Foreign(undo.path, f"somebody set it since: it reads {now.strip()}")
        reverted.actions.append(f"set {undo.path} to {undo.was.strip()}")
        if self._dry_run:
            return
        self._host.write_control(undo.path, undo.was)
        now = self._host.read_word(undo.path)
        if now == undo.was.strip():
            return
        if not undo.may_fall_short:
            raise _Foreign(undo.path, f"it reads {now} after {undo.was.strip()} was written")
        self.notes.append(f"{undo.path} reads {now} still; the kernel takes the rest back when it is free.")

    @_do_undo.register
    def _set_sizes_back(self, undo: SetSizesBack, _step: _StepUndo, reverted: RevertedStep) -> None:
        sizes = self._host.link_sizes(undo.interface)
        now = {size: sizes.get(size) for size in undo.was}
        if not sizes:
            self.notes.append(f"{undo.interface} isn't there: its sizes are not set back.")
            return
        if now == undo.was:
            return
        others = [size for size in now if now[size] not in {undo.was[size], undo.ours[size]}]
        if others and not self._force:
            found = " ".join(f"{size}={now[size]}" for size in others)
            raise _Foreign("", f"somebody set sizes of {undo.interface} since: {found}")
        back = " ".join(f"{size}={value}" for size, value in undo.was.items())
        reverted.actions.append(f"set {back} of {undo.interface}")
        if not self._dry_run:
            self._host.set_link_sizes(undo.interface, undo.was)

    @_do_undo.register
    def _remove_folder(self, undo: RemoveFolder, _step: _StepUndo, reverted: RevertedStep) -> None:
        if not self._host.is_dir(undo.path) or self._host.is_link(undo.path):
            return
        if self._dry_run:
            reverted.actions.append(f"remove the directory {undo.path} if it is empty")
            return
        try:
            self._host.remove(undo.path)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            if any(kept.path.startswith(f"{undo.path}/") for kept in self.kept):
                raise _Foreign(undo.path, "it holds files that were kept") from None
            self.notes.append(f"{undo.path} stays: it holds files that are not HARP's.")
        else:
            reverted.actions.append(f"remove the directory {undo.path}")

    @_do_undo.register
    def _run_back(self, undo: RunBack, step: _StepUndo, reverted: RevertedStep) -> None:
        problem = self._run_command(undo.argv, undo.timeout_s)
        if not problem:
            reverted.actions.append(f"run `{' '.join(undo.argv)}`")
        elif self._host.runs_commands and (self._force or (undo.fleeting and step.may_be_undone)):
            self.notes.append(f"{problem} (its effect may have been gone already)")
        else:
            raise _Foreign("", problem)

    @_do_undo.register
    def _put_output_back(self, undo: PutOutputBack, step: _StepUndo, reverted: RevertedStep) -> None:
        if step.foreign and undo.again:
            if not self._host.runs_commands:
                raise _Foreign(
                    step.foreign[0],
                    f"somebody changed it since; `{' '.join(undo.again)}` would rebuild it",
                    undo.was.get(step.foreign[0]),
                )
            reverted.actions.append(f"run `{' '.join(undo.again)}` at the end")
            step.again.append(undo)
            return
        paths = set(undo.was) | set(step.after.output if step.after else matching_files(self._host, undo.patterns))
        for path in sorted(paths, reverse=True):
            if path not in step.foreign or self._force:
                self._put_state(path, undo.was.get(path, Absent()), reverted)
        if step.foreign and not self._force:
            path = step.foreign[0]
            raise _Foreign(path, "somebody changed it since", undo.was.get(path, Absent()))

    # ---- what somebody changed, of what can't be foretold ----

    def _find_foreign(self, before: Before, after: After | None) -> tuple[str, ...]:
        """Find the control files and outputs of commands that somebody changed since a step was done."""
        found = []
        for undo in before.undo:
            if isinstance(undo, SetBack) and after is not None:
                if self._host.read_word(undo.path) not in {after.reads, undo.was.strip()}:
                    found.append(undo.path)
            elif isinstance(undo, PutOutputBack):
                found += self._foreign_outputs(undo, before, after)
        return tuple(found)

    def _foreign_outputs(self, undo: PutOutputBack, before: Before, after: After | None) -> list[str]:
        found = []
        paths = set(undo.was) | set(matching_files(self._host, undo.patterns)) | set(after.output if after else ())
        for path in sorted(paths):
            now, _data = self._read_imagined(path)
            if same_content(now, undo.was.get(path, Absent())):
                continue
            if after is not None:
                ours = same_content(now, after.output.get(path, Absent()))
            else:
                ours = self._was_written_then(path, before.at, undo.timeout_s)
            if not ours:
                found.append(path)
        return found

    def _was_written_then(self, path: str, begin: float, timeout_s: float) -> bool:
        """Return whether a file was changed while a command could run whose end nobody saw."""
        status = self._host.stat(path)
        if status is None:
            return True
        return begin - CLOCK_SLACK_S <= status.st_mtime <= begin + timeout_s + CLOCK_SLACK_S

    # ---- the host ----

    def _find_renamed(self, path: str, what: State) -> str:
        """Return the path by which somebody calls a file that was at a path, in the same directory; ""."""
        folder = path.rpartition("/")[0]
        if not isinstance(what, File) or not what.size:
            return ""
        for name in sorted(self._host.list_dir(folder)):
            other = f"{folder}/{name}"
            status = self._host.stat(other)
            if status is None or not stat.S_ISREG(status.st_mode) or status.st_size != what.size:
                continue
            if same_content(self._read_imagined(other)[0], what):
                return other
        return ""

    def _read_imagined(self, path: str) -> tuple[State, bytes]:
        return self._imagined[path] if path in self._imagined else read_state(self._host, path)

    def _put_state(self, path: str, was: State, reverted: RevertedStep) -> None:
        if not self._dry_run:
            self._host.remove(self._host.temporary(path))  # a writer that was killed has left it
        now, data = self._read_imagined(path)
        if now == was:
            return
        original = self._journal.saved(was.sha256) if isinstance(was, File) else b""
        reverted.actions.append(f"remove {path}" if isinstance(was, Absent) else f"restore {path}")
        if self._dry_run:
            reverted.diff += file_diff(path, (now, data), (was, original))
            self._imagined[path] = (was, original)
        else:
            restore_state(self._host, path, was, original)

    def _run_command(self, argv: tuple[str, ...], timeout_s: float) -> str:
        """Run a command; return what went wrong, "" when nothing did."""
        if not self._host.runs_commands:
            return f"`{' '.join(argv)}` can't be run for a directory tree"
        if self._dry_run:
            return ""
        done = self._host.run(argv, timeout_s)
        return "" if done.code == 0 else f"`{' '.join(argv)}` failed: {done.last_line}"

    def _was_rebooted(self, before: Before) -> bool:
        return boot_id(self._host) != before.boot

    def _write_record(self, transaction: Transaction, record: Undoing | Undone | Left) -> None:
        """Record it, if that can be done: on a full disk the undoing matters more than its record."""
        if self._dry_run:
            return
        try:
            transaction.add(record)
        except OSError as error:
            transaction.records.append(record)
            self.notes.append(f"The journal could not be written: {_reason_of(error)}.")

    def _keep_foreign(self, transaction: Transaction, before: Before, problems: list[_Foreign]) -> None:
        for problem in problems:
            saved = f"{BLOBS}/{problem.was.sha256}" if isinstance(problem.was, File) else ""
            self.kept.append(
                KeptPart(
                    transaction=transaction.id,
                    step=before.title,
                    path=problem.path,
                    reason=problem.reason,
                    saved=saved,
                    diff=self._diff_from_original(problem),
                )
            )
        self._write_record(transaction, Left(step=before.step, reason="; ".join(p.reason for p in problems)))

    def _diff_from_original(self, problem: _Foreign) -> str:
        """Return the diff from the original to what is there now; "" where either can't be read."""
        if problem.was is None:
            return ""
        try:
            original = self._journal.saved(problem.was.sha256) if isinstance(problem.was, File) else b""
            return file_diff(problem.path, (problem.was, original), self._read_imagined(problem.path))
        except (HarpError, OSError):
            return ""


def matching_files(host: Host, patterns: tuple[str, ...]) -> list[str]:
    """Return the files that fit any of the patterns, links resolved."""
    return sorted({host.resolve_links(path) for pattern in patterns for path in host.glob(pattern)})


def _path_of(undo: Undo) -> str:
    return "" if isinstance(undo, RunBack | PutOutputBack | SetSizesBack) else undo.path


def _reason_of(error: HarpError | OSError) -> str:
    if isinstance(error, HarpError):
        return error.message.rstrip(".")
    return error.strerror or str(error)
