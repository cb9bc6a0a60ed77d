# SPDX-License-Identifier: Apache-2.0
"""Undo data: what takes a change back, as primitives that any version of harpctl can carry out.

They name bytes and paths, never a planner's ideas: a step may change its meaning from one version to the
next, "this file held these bytes with this mode" doesn't. They are part of the journal's format.
"""

from __future__ import annotations

import msgspec

from harpctl.change.state import Absent, State


class PutBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="put back"):
    """The path held `was`; it holds `ours` from the change on."""

    path: str
    was: State
    ours: State


class MoveBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="move back"):
    """The file at `path` was at `to`. `what` describes it, so that it is found where somebody renamed it."""

    path: str
    to: str
    what: State = Absent()  # the state of a file


class SetBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="set back"):
    """The control file held `was`; it holds `ours`, or what the journal has recorded after the change."""

    path: str
    was: str
    ours: str
    may_fall_short: bool = False  # the kernel may come near only: pages that a job holds go when it ends


class SetSizesBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="set sizes back"):
    """The interface had the sizes `was`; it has `ours`, or what a boot made of them."""

    interface: str
    was: dict[str, int]  # all that can be set, because setting one may change another
    ours: dict[str, int]


class RemoveFolder(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="remove folder"):
    """The directory was made; it goes if it is empty."""

    path: str


class RunBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="run"):
    """A command that takes back what a command did; a `fleeting` effect may be gone already."""

    argv: tuple[str, ...]
    timeout_s: float
    fleeting: bool = False


class PutOutputBack(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="put output back"):
    """Files that a command rewrites, with what they were; `again` rebuilds them where that is wrong now."""

    patterns: tuple[str, ...]
    was: dict[str, State]
    again: tuple[str, ...]
    timeout_s: float


Undo = PutBack | MoveBack | SetBack | SetSizesBack | RemoveFolder | RunBack | PutOutputBack
