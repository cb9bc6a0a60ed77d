# SPDX-License-Identifier: Apache-2.0
"""Shows a plan's changes as a unified diff, with the commands in their order."""

from __future__ import annotations

import difflib
import shlex

from harpctl.change.state import Absent, File, Folder, Link, State, digest_of, read_state, same_content
from harpctl.change.steps import (
    AnyStep,
    MakeLink,
    Plan,
    RemoveFile,
    Run,
    SetControl,
    SetSizes,
    WriteFile,
    drop_held_steps,
    mode_of,
)
from harpctl.host.host import Host

NO_LINE_END = "\\ No newline at end of file\n"


def render_diff(plan: Plan, host: Host) -> str:
    """Return what --dry-run prints: a diff, with `$ command` and `= value > control file` in their places.

    Sizes of an interface are `= size=bytes ... of interface`. Raises HarpError for what can't be read.
    """
    seen = _Imagined(host)
    lines = []
    for group in drop_held_steps(plan, host).groups:
        texts = list(filter(None, (_text_of(step, seen) for step in group.steps)))
        lines += [f"# {group.name}\n", *texts] if texts else []
    return "".join(lines)


def file_diff(path: str, old: tuple[State, bytes], new: tuple[State, bytes]) -> str:
    """Return the unified diff of what is at a path; "" when nothing differs that a diff can show."""
    (was, was_data), (becomes, data) = old, new
    head = _describe_change(path, was, becomes)
    if same_content(was, becomes):
        return head
    before, after = _decode_text(was, was_data), _decode_text(becomes, data)
    if before is None or after is None:
        sizes = f"{len(was_data)} bytes, then {len(data)}"
        names = f"{_side_name('a', path, was)} and {_side_name('b', path, becomes)}"
        return f"{head}Binary files {names} differ ({sizes})\n"
    lines = difflib.unified_diff(
        _split_lines(before),
        _split_lines(after),
        _side_name("a", path, was),
        _side_name("b", path, becomes),
        n=3,
    )
    return head + "".join(line if line.endswith("\n") else f"{line}\n{NO_LINE_END}" for line in lines)


class _Imagined:
    """A host as it will be after the steps described so far."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._changed: dict[str, tuple[State, bytes]] = {}

    def look(self, path: str, *, follow: bool = False) -> tuple[State, bytes]:
        place = self.place(path, follow=follow)
        return self._changed[place] if place in self._changed else read_state(self._host, place)

    def place(self, path: str, *, follow: bool = False) -> str:
        return self._host.resolve_links(path) if follow else self._host.resolve_folders(path)

    def put(self, path: str, state: State, data: bytes) -> str:
        """Imagine a state at a place; return the diff from what is there now."""
        diff = file_diff(path, self.look(path), (state, data))
        self._changed[path] = (state, data)
        return diff


def _text_of(step: AnyStep, seen: _Imagined) -> str:
    """Describe a step; "" for a command that acts only when it is undone."""
    if isinstance(step, Run):
        return f"$ {shlex.join(step.argv)}\n" if step.argv else ""
    if isinstance(step, SetSizes | SetControl):
        return f"= {step.text if isinstance(step, SetSizes) else f'{step.value} > {step.path}'}\n"
    if isinstance(step, WriteFile):
        path = seen.place(step.path, follow=True)
        was, _data = seen.look(path)
        return seen.put(path, File(sha256=digest_of(step.data), mode=mode_of(step, was)), step.data)
    if isinstance(step, RemoveFile):
        return seen.put(seen.place(step.path), Absent(), b"")
    if isinstance(step, MakeLink):
        return seen.put(seen.place(step.path), Link(target=step.target), b"")
    moved = seen.look(step.path)
    seen.put(seen.place(step.path), Absent(), b"")
    seen.put(seen.place(step.to), *moved)
    return f"rename from {step.path}\nrename to {step.to}\n"


def _describe_change(path: str, was: State, becomes: State) -> str:
    """Return the lines for what a unified diff can't show: modes, links, directories."""
    lines = []
    if isinstance(was, File) and isinstance(becomes, File) and was.mode != becomes.mode:
        lines += [f"old mode of {path}: {was.mode:04o}", f"new mode of {path}: {becomes.mode:04o}"]
    if isinstance(becomes, File) and not isinstance(was, File):
        lines.append(f"new file {path}, mode {becomes.mode:04o}")
    if isinstance(becomes, Absent):
        kind = {Link: "link", Folder: "directory"}.get(type(was), "file")
        lines.append(f"remove the {kind} {path}")
    if isinstance(was, Link) and not same_content(was, becomes):
        lines.append(f"old link {path} -> {was.target}")
    if isinstance(becomes, Link) and not same_content(was, becomes):
        lines.append(f"new link {path} -> {becomes.target}")
    return "".join(f"{line}\n" for line in lines)


def _decode_text(state: State, data: bytes) -> str | None:
    """Return text that can be compared; None for bytes that are none."""
    if not isinstance(state, File):
        return ""
    if b"\0" in data:
        return None
    return data.decode("utf-8", "replace")


def _split_lines(text: str) -> list[str]:
    """Split at line feeds alone: a carriage return is a part of its line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _side_name(side: str, path: str, state: State) -> str:
    return f"{side}{path}" if isinstance(state, File) else "/dev/null"
