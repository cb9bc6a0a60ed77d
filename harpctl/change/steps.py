# SPDX-License-Identifier: Apache-2.0
"""Steps: the only kinds of change that harpctl makes to a host.

A planner makes a Plan from facts; apply.py carries it out and journals it; rollback.py undoes it.
Steps state what shall hold: one that already holds is dropped (`needed`), so a second run has nothing to do.
"""

from __future__ import annotations

import enum

import msgspec

from harpctl.change.os_errors import translate_os_errors
from harpctl.change.state import File, State
from harpctl.host.host import Host

NEW_FILE_MODE = 0o644


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """The base of all steps; `why` is a phrase for the operator: "hugepages from the next boot on"."""

    why: str = ""


class WriteFile(Step, frozen=True, kw_only=True, tag="write"):
    """The file at `path` holds `data`; `mode` None keeps an existing file's, and is 0644 for a new one."""

    path: str
    data: bytes
    mode: int | None = None


class RemoveFile(Step, frozen=True, kw_only=True, tag="remove"):
    """There is nothing at `path`."""

    path: str


class MakeLink(Step, frozen=True, kw_only=True, tag="link"):
    """A symbolic link at `path` names `target`."""

    path: str
    target: str


class Rename(Step, frozen=True, kw_only=True, tag="rename"):
    """The file at `path` moves to `to`."""

    path: str
    to: str


class SetControl(Step, frozen=True, kw_only=True, tag="control"):
    """The control file at `path` (sysfs, procfs) reads `value`, or near it (`may_fall_short`)."""

    path: str
    value: str
    may_fall_short: bool = False


class SetSizes(Step, frozen=True, kw_only=True, tag="sizes"):
    """The interface has these sizes of TCP's largest packets (host/link_sizes.py), until the next boot."""

    interface: str
    sizes: dict[str, int]

    @property
    def text(self) -> str:
        """Return the sizes and where: "gso_max_size=131072 gro_max_size=131072 of eth1"."""
        return f"{' '.join(f'{size}={value}' for size, value in self.sizes.items())} of {self.interface}"


class Run(Step, frozen=True, kw_only=True, tag="run"):
    """A command of the host, run when its group has anything else to do, or `always`.

    argv may be empty: such a step acts only when it is undone. `undo` is run when it is undone ("" for none).
    `rewrites` are glob patterns of files that the command rewrites: they are saved before and restored
    byte for byte on undo; where one of them has been changed by somebody else since, or a new one fits the
    pattern, `again` is run instead, after everything else of the rollback is done.
    What a `fleeting` command does is gone after a reboot: its undo may find nothing to do then, or when
    either was interrupted. That any other undo fails is always reported, and the step stays to be undone.
    """

    argv: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    always: bool = False
    fleeting: bool = False
    timeout_s: float = 120.0


AnyStep = WriteFile | RemoveFile | MakeLink | Rename | SetControl | SetSizes | Run


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that belong together, shown to the operator as one line of progress.

    A `guarded` group may cut the host off: it is applied under the guard of network/guard.py, which takes it
    back after 120 s if the host can't be reached and nobody confirmed.
    """

    name: str  # "kernel arguments"
    steps: tuple[AnyStep, ...]
    guarded: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps to be done, and what the operator should know."""

    groups: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()  # facts worth knowing that need no step
    reboot: str = ""  # why a reboot is needed for it to hold; "" when none is

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not any(group.steps for group in self.groups)


def mode_of(step: WriteFile, was: State) -> int:
    """Return the mode of a file that a step writes, by what was at its path."""
    if step.mode is not None:
        return step.mode
    return was.mode if isinstance(was, File) else NEW_FILE_MODE


class Need(enum.Enum):
    """The answer to whether a step would change something."""

    YES = "yes"
    NO = "no"
    WITH_OTHERS = "with others"  # a command that follows its group


def find_need(step: AnyStep, host: Host) -> Need:
    """Return whether a step would change the host as it is now."""
    if isinstance(step, Run):
        return Need.YES if step.always else Need.WITH_OTHERS
    return Need.NO if _step_holds(step, host) else Need.YES


def _step_holds(step: WriteFile | RemoveFile | MakeLink | Rename | SetControl | SetSizes, host: Host) -> bool:
    if isinstance(step, WriteFile):
        status = host.stat(host.resolve_links(step.path))
        same = host.is_file(step.path) and host.read_bytes(step.path) == step.data
        return same and step.mode in {None, status.st_mode & 0o7777 if status else None}
    if isinstance(step, RemoveFile):
        return host.stat(step.path) is None
    if isinstance(step, MakeLink):
        return host.read_link(step.path) == step.target
    if isinstance(step, Rename):
        return host.stat(step.path) is None and host.stat(step.to) is not None
    if isinstance(step, SetControl):
        return host.read_word(step.path) == step.value
    return step.sizes.items() <= host.link_sizes(step.interface).items()


def drop_held_steps(plan: Plan, host: Host) -> Plan:
    """Drop the steps that already hold, and the commands of groups where nothing is left to do.

    Raises HarpError for a path that can't be looked at.
    """
    groups = []
    for group in plan.groups:
        with translate_os_errors(host):
            needs = [(step, find_need(step, host)) for step in group.steps]
        if any(found is Need.YES for _step, found in needs):
            steps = tuple(step for step, found in needs if found is not Need.NO)
            groups.append(msgspec.structs.replace(group, steps=steps))
    return msgspec.structs.replace(plan, groups=tuple(groups))
