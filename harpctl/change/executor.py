# SPDX-License-Identifier: Apache-2.0
"""The executor runs steps. The journal holds what reverts a step before the step is run."""

from __future__ import annotations

import errno
import functools
import os
import shlex
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from harpctl.change.journal import After, Before, Journal, Transaction, boot_id
from harpctl.change.reverter import matching_files
from harpctl.change.state import Absent, File, Link, State, digest_of, read_state
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
    find_need,
    mode_of,
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


class _Ready(NamedTuple):
    """A step that is about to be done."""

    undo: tuple[Undo, ...]
    act: Callable[[], None]
    folders: tuple[str, ...] = ()  # the folders that it needs, outermost first


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
        if not any(find_need(step, self._host) is Need.YES for step in group.steps):
            return
        for step in group.steps:
            if find_need(step, self._host) is not Need.NO:
                self._do_step(step)

    def _do_step(self, step: AnyStep) -> None:
        self._count += 1
        ready = self._prepare(step)
        self._transaction.add(
            Before(
                step=self._count,
                title=describe_step(step),
                undo=ready.undo,
                boot=boot_id(self._host),
                at=time.time(),
            )
        )
        for folder in ready.folders:
            self._host.make_dir(folder)
        ready.act()

    # ---- the kinds of steps: what a step replaces is kept, and nothing is done yet ----

    @functools.singledispatchmethod
    def _prepare(self, step: AnyStep) -> _Ready:
        raise AssertionError(step)

    @_prepare.register
    def _prepare_file(self, step: WriteFile) -> _Ready:
        path = self._host.resolve_links(step.path)
        was = self._save_state(path)
        mode, owner = mode_of(step, was), (was.uid, was.gid) if isinstance(was, File) else None
        ours = File(sha256=digest_of(step.data), mode=mode, size=len(step.data))
        act = partial(self._host.write_file, step.path, step.data, mode, owner)
        return self._with_folders(path, PutBack(path=path, was=was, ours=ours), act)

    @_prepare.register
    def _prepare_removal(self, step: RemoveFile) -> _Ready:
        path = self._host.resolve_folders(step.path)
        undo = PutBack(path=path, was=self._save_state(path), ours=Absent())
        return _Ready((undo,), partial(self._host.remove, step.path))

    @_prepare.register
    def _prepare_link(self, step: MakeLink) -> _Ready:
        path = self._host.resolve_folders(step.path)
        undo = PutBack(path=path, was=self._save_state(path), ours=Link(target=step.target))
        return self._with_folders(path, undo, partial(self._host.make_link, step.path, step.target))

    @_prepare.register
    def _prepare_rename(self, step: Rename) -> _Ready:
        path, to = self._host.resolve_folders(step.path), self._host.resolve_folders(step.to)
        if self._host.stat(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._host.stat(to) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to)
        undo = MoveBack(path=to, to=path, what=self._state_to_move(path))
        return self._with_folders(to, undo, partial(self._host.rename, step.path, step.to))

    @_prepare.register
    def _prepare_control(self, step: SetControl) -> _Ready:
        undo = SetBack(
            path=self._host.resolve_links(step.path),
            was=self._host.read_text(step.path) or "",
            ours=step.value,
            may_fall_short=step.may_fall_short,
        )
        return _Ready((undo,), partial(self._write_control, step))

    @_prepare.register
    def _prepare_sizes(self, step: SetSizes) -> _Ready:
        sizes = self._host.link_sizes(step.interface)
        was = {size: value for size, value in sizes.items() if size in SETTABLE}
        undo = SetSizesBack(interface=step.interface, was=was, ours={**was, **step.sizes})
        return _Ready((undo,), partial(self._host.set_link_sizes, step.interface, step.sizes))

    @_prepare.register
    def _prepare_command(self, step: Run) -> _Ready:
        undo: list[Undo] = []
        if step.undo:
            undo.append(RunBack(argv=step.undo, timeout_s=step.timeout_s, fleeting=step.fleeting))
        if step.rewrites:
            was = {path: self._save_state(path) for path in matching_files(self._host, step.rewrites)}
            undo.append(PutOutputBack(patterns=step.rewrites, was=was, again=step.again, timeout_s=step.timeout_s))
        return _Ready(tuple(undo), partial(self._run_command, step))

    def _with_folders(self, path: str, undo: Undo, act: Callable[[], None]) -> _Ready:
        folders: list[str] = []
        folder = path.rpartition("/")[0]
        while folder and self._host.stat(folder) is None:
            folders.insert(0, folder)
            folder = folder.rpartition("/")[0]
        return _Ready((undo, *(RemoveFolder(path=made) for made in reversed(folders))), act, tuple(folders))

    def _state_to_move(self, path: str) -> State:
        """Return the state of a file to be moved; Absent where it can't be read, for it is moved all the same."""
        try:
            return read_state(self._host, path)[0]
        except HarpError:
            return Absent()

    def _save_state(self, path: str) -> State:
        state, data = read_state(self._host, path)
        if isinstance(state, File):
            self._journal.save(data)
        return state

    def _write_control(self, step: SetControl) -> None:
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

    def _run_command(self, step: Run) -> None:
        if step.argv:
            done = self._host.run(step.argv, step.timeout_s)
            if done.code != 0:
                raise HarpError(
                    f"`{shlex.join(step.argv)}` failed: {done.last_line}.",
                    "Run that command by hand to see its whole output, repair the cause, and run this again.",
                )
        output = {path: read_state(self._host, path)[0] for path in matching_files(self._host, step.rewrites)}
        self._transaction.add(After(step=self._count, output=output))


TITLES: dict[type, str] = {
    WriteFile: "write {0.path}",
    RemoveFile: "remove {0.path}",
    MakeLink: "link {0.path} to {0.target}",
    Rename: "rename {0.path} to {0.to}",
    SetControl: "set {0.path} to {0.value}",
    SetSizes: "set {0.text}",
}


def describe_step(step: AnyStep) -> str:
    """Return in a few words what a step does."""
    if isinstance(step, Run):
        return f"run `{shlex.join(step.argv)}`" if step.argv else f"have `{shlex.join(step.undo)}` run on undo"
    return TITLES[type(step)].format(step)


def written_paths(step: AnyStep) -> tuple[str, ...]:
    """Return the paths of files a step writes; those of control files are not among them."""
    if isinstance(step, Rename):
        return step.path, step.to
    return () if isinstance(step, SetControl | SetSizes | Run) else (step.path,)
