# SPDX-License-Identifier: Apache-2.0
"""The executor runs steps. The journal holds what reverts a step before the step is run."""

from __future__ import annotations

import errno
import os
import shlex
import time

from harpctl.change.journal import After, Before, Journal, Transaction, boot_id
from harpctl.change.reverter import matches
from harpctl.change.state import Absent, File, Link, State, digest, read_state
from harpctl.change.steps import (
    AnyStep,
    Group,
    MakeLink,
    Need,
    RemoveFile,
    Rename,
    Run,
    SetControl,
    SetSizes,
    WriteFile,
    mode_of,
    need,
)
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
from harpctl.console import Progress
from harpctl.errors import HarpError
from harpctl.host.host import Host
from harpctl.host.link_sizes import SETTABLE


class Executor:
    """Carries out the steps of one transaction."""

    def __init__(self, host: Host, journal: Journal, transaction: Transaction, progress: Progress) -> None:
        self._host = host
        self._journal = journal
        self._transaction = transaction
        self._progress = progress
        self._count = 0

    def run_group(self, group: Group) -> None:
        """Do what of a group does not hold yet. Raises HarpError and OSError."""
        if not any(need(step, self._host) is Need.YES for step in group.steps):
            return
        for step in group.steps:
            if need(step, self._host) is not Need.NO:
                self._do(step)

    def _do(self, step: AnyStep) -> None:
        self._count += 1
        undo, folders = self._undo_of(step)
        self._transaction.add(
            Before(step=self._count, title=title(step), undo=undo, boot=boot_id(self._host), at=time.time())
        )
        for folder in folders:
            self._host.make_dir(folder)
        if isinstance(step, WriteFile):
            self._write(step)
        elif isinstance(step, RemoveFile):
            self._host.remove(step.path)
        elif isinstance(step, MakeLink):
            self._host.make_link(step.path, step.target)
        elif isinstance(step, Rename):
            self._host.rename(step.path, step.to)
        elif isinstance(step, SetControl):
            self._set(step)
        elif isinstance(step, SetSizes):
            self._host.set_link_sizes(step.interface, step.sizes)
        else:
            self._run(step)

    # ---- what takes a step back ----

    def _undo_of(self, step: AnyStep) -> tuple[tuple[Undo, ...], list[str]]:
        """Keep what a step replaces; return its undo data, and the directories it needs, outermost first."""
        host = self._host
        if isinstance(step, WriteFile):
            path = host.resolved(step.path)
            was = self._saved_state(path)
            ours = File(sha256=digest(step.data), mode=mode_of(step, was), size=len(step.data))
            return self._with_folders(path, PutBack(path=path, was=was, ours=ours))
        if isinstance(step, RemoveFile):
            path = host.placed(step.path)
            return (PutBack(path=path, was=self._saved_state(path), ours=Absent()),), []
        if isinstance(step, MakeLink):
            path = host.placed(step.path)
            return self._with_folders(
                path, PutBack(path=path, was=self._saved_state(path), ours=Link(target=step.target))
            )
        if isinstance(step, Rename):
            path, to = host.placed(step.path), host.placed(step.to)
            if host.stat(path) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if host.stat(to) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to)
            return self._with_folders(to, MoveBack(path=to, to=path, what=self._state(path)))
        if isinstance(step, SetControl | SetSizes):
            return (self._undo_of_setting(step),), []
        return self._undo_of_command(step), []

    def _undo_of_setting(self, step: SetControl | SetSizes) -> Undo:
        host = self._host
        if isinstance(step, SetControl):
            was_text = host.read_text(step.path) or ""
            path, may_fall_short = host.resolved(step.path), step.may_fall_short
            return SetBack(path=path, was=was_text, ours=step.value, may_fall_short=may_fall_short)
        sizes = host.link_sizes(step.interface)
        was = {size: value for size, value in sizes.items() if size in SETTABLE}
        return SetSizesBack(interface=step.interface, was=was, ours={**was, **step.sizes})

    def _undo_of_command(self, step: Run) -> tuple[Undo, ...]:
        undo: list[Undo] = []
        if step.undo:
            undo.append(RunBack(argv=step.undo, timeout_s=step.timeout_s, fleeting=step.fleeting))
        if step.rewrites:
            was = {path: self._saved_state(path) for path in matches(self._host, step.rewrites)}
            undo.append(
                PutOutputBack(patterns=step.rewrites, was=was, again=step.again, timeout_s=step.timeout_s)
            )
        return tuple(undo)

    def _with_folders(self, path: str, undo: Undo) -> tuple[tuple[Undo, ...], list[str]]:
        folders: list[str] = []
        folder = path.rpartition("/")[0]
        while folder and self._host.stat(folder) is None:
            folders.insert(0, folder)
            folder = folder.rpartition("/")[0]
        return (undo, *(RemoveFolder(path=made) for made in reversed(folders))), folders

    def _state(self, path: str) -> State:
        """Return what is moved; what can't be read is moved all the same."""
        try:
            return read_state(self._host, path)[0]
        except HarpError:
            return Absent()

    def _saved_state(self, path: str) -> State:
        state, data = read_state(self._host, path)
        if isinstance(state, File):
            self._journal.save(data)
        return state

    # ---- what a step does ----

    def _write(self, step: WriteFile) -> None:
        was, _data = read_state(self._host, self._host.resolved(step.path))
        owner = (was.uid, was.gid) if isinstance(was, File) else None
        self._host.write_file(step.path, step.data, mode_of(step, was), owner)

    def _set(self, step: SetControl) -> None:
        self._host.write_control(step.path, step.value)
        reads = self._host.read_word(step.path)
        self._transaction.add(After(step=self._count, reads=reads))
        if reads == step.value:
            return
        if not step.may_fall_short:
            raise HarpError(
                f"{step.path} reads {reads!r} after {step.value!r} was written.",
                "Look at `dmesg` for the reason.",
            )
        self._progress.print(f"{step.path}: {reads} of {step.value}")

    def _run(self, step: Run) -> None:
        if step.argv:
            done = self._host.run(step.argv, step.timeout_s)
            if done.code != 0:
                raise HarpError(
                    f"`{shlex.join(step.argv)}` failed: {done.last_line}.",
                    "Run that command by hand to see its whole output, repair the cause, and run this again.",
                )
        output = {path: read_state(self._host, path)[0] for path in matches(self._host, step.rewrites)}
        self._transaction.add(After(step=self._count, output=output))


def title(step: AnyStep) -> str:
    """Return in a few words what a step does."""
    if isinstance(step, Run):
        return (
            f"run `{shlex.join(step.argv)}`" if step.argv else f"have `{shlex.join(step.undo)}` run on undo"
        )
    if isinstance(step, Rename):
        return f"rename {step.path} to {step.to}"
    if isinstance(step, SetControl):
        return f"set {step.path} to {step.value}"
    if isinstance(step, SetSizes):
        return f"set {step.text}"
    if isinstance(step, MakeLink):
        return f"link {step.path} to {step.target}"
    return f"{'write' if isinstance(step, WriteFile) else 'remove'} {step.path}"


def targets(step: AnyStep) -> tuple[str, ...]:
    """Return the paths of files a step writes; those of control files are not among them."""
    if isinstance(step, Rename):
        return step.path, step.to
    return () if isinstance(step, SetControl | SetSizes | Run) else (step.path,)
