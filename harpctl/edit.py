# SPDX-License-Identifier: Apache-2.0
"""`harpctl edit`: change, move or remove one configuration file, so that `harpctl rollback` knows of it.

The doctor's repairs of conf files, of nccl.conf and of sysctl's files are such commands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harpctl.change.apply import apply_plan
from harpctl.change.diff import render_diff
from harpctl.change.rollback import recover_interrupted
from harpctl.change.steps import AnyStep, Group, Plan, RemoveFile, Rename, WriteFile, drop_held_steps
from harpctl.command_line import argument, command, dry_run_option, flag, json_option, option, root_option
from harpctl.confs.table import KEYS
from harpctl.console import ConsoleProgress, NoProgress, Progress, print_json, print_lines
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host, open_host

WHY = "edited"


@command()
@argument("file", metavar="FILE", help="An absolute path on the host.")
@option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a key, in its place or in its section.",
)
@option("--unset", metavar="KEY", multiple=True, help="Remove the lines of a key.")
@option("--comment", metavar="LINE", multiple=True, type=int, help="Put a # before a line.")
@option("--move-to", "to", metavar="PATH", default="", help="Give the file another name; none may be there.")
@flag("--delete", help="Remove the file.")
@dry_run_option
@json_option
@root_option
def edit(
    file: str,
    *,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    comment: tuple[int, ...],
    to: str,
    delete: bool,
    dry_run: bool,
    as_json: bool,
    root: Path | None,
) -> None:
    """Change, move or remove one configuration file; `harpctl rollback` restores it."""
    host = open_host(root)
    progress: Progress = NoProgress() if as_json else ConsoleProgress()
    if not dry_run:
        recover_interrupted(host, progress=progress)
    changes = _Changes(assignments, unset, comment)
    plan = plan_edit(host, file, changes, to=to, delete=delete)
    result = EditResult(file=file, changed=not plan.is_empty, plan=render_diff(plan, host) if dry_run else "")
    if not dry_run:
        result = replace(result, transaction=apply_plan(plan, host, what="edit", progress=progress))
    if as_json:
        print_json(result)
    else:
        done = result.plan or f"{file}: changed.\n"
        print_lines(done if result.changed else f"{file} is so already.\n")


class EditResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `edit --json`."""

    file: str
    changed: bool  # with --dry-run: would change something
    transaction: str = ""  # its id for `harpctl rollback`; "" when nothing changed
    plan: str = ""  # what --dry-run shows


class _Changes:
    """Changes to be made in the lines of a file."""

    def __init__(self, assignments: Sequence[str], unset: Sequence[str], comment: Sequence[int]) -> None:
        self.values = dict(_parse_assignment(text) for text in assignments)
        self.unset = unset
        self.comment = comment

    def __bool__(self) -> bool:
        return bool(self.values or self.unset or self.comment)


def _parse_assignment(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(r"[\w.-]+", key) or not value or not value.isprintable():
        raise HarpError(f"--set {text!r} is no KEY=VALUE.", "For example: --set mtu=8900", ExitCode.USAGE)
    return key, value


def plan_edit(host: Host, file: str, changes: _Changes, *, to: str = "", delete: bool = False) -> Plan:
    """Plan one kind of change of a file; raise HarpError where it can't be made."""
    if [bool(changes), bool(to), delete].count(True) != 1:
        raise HarpError(
            "Say what to do with the file: --set, --unset and --comment together, or --move-to, or --delete.",
            f"For example: harpctl edit {file} --set mtu=8900",
            ExitCode.USAGE,
        )
    if not all(path.startswith("/") for path in (file, to) if path):
        raise HarpError("The paths must be absolute.", f"For example: /etc/{file}", ExitCode.USAGE)
    data = host.read_bytes(file)
    if data is None and not (delete or to):
        raise HarpError(f"{file} is not there or can't be read.", f"ls -l {file}", ExitCode.MISSING)
    return drop_held_steps(
        Plan(groups=(Group(name="file", steps=(_plan_step(host, file, data, changes, to),)),)), host
    )


def _plan_step(host: Host, file: str, data: bytes | None, changes: _Changes, to: str) -> AnyStep:
    if changes:
        return WriteFile(why=WHY, path=file, data=_apply_changes(file, data or b"", changes))
    if not to:
        return RemoveFile(why=WHY, path=file)
    if host.stat(file) is not None and host.stat(to) is not None:
        raise HarpError(f"{to} is there already.", "Choose another name.", ExitCode.REFUSED)
    return Rename(why=WHY, path=file, to=to)


def _apply_changes(file: str, data: bytes, changes: _Changes) -> bytes:
    """Return the file's bytes with the changes; lines that nothing concerns stay byte for byte."""
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    for number in changes.comment:
        if not 1 <= number <= len(lines):
            raise HarpError(f"{file} has {len(lines)} lines, not {number}.", f"cat -n {file}", ExitCode.USAGE)
        if not lines[number - 1].lstrip().startswith(("#", ";")):
            lines[number - 1] = f"# {lines[number - 1]}"
    for key in changes.unset:
        lines = [line for line in lines if not _is_of(line, key)]
    for key, value in changes.values.items():
        _set_key(lines, key, value)
    return "".join(lines).encode("utf-8", "surrogateescape")


def _is_of(line: str, key: str) -> bool:
    return re.match(rf"\s*{re.escape(key)}\s*=", line) is not None


def _set_key(lines: list[str], key: str, value: str) -> None:
    """Set a key: in its line, behind the head of its section, or at the end."""
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    for at, line in enumerate(lines):
        if _is_of(line, key):
            before = re.match(r"\s*[^=]*=[ \t]*", line)
            lines[at] = f"{before[0] if before else key + '='}{value}{end}"
            return
    section = KEYS[key].section if key in KEYS else ""
    head = next((at for at, line in enumerate(lines) if section and line.strip() == f"[{section}]"), None)
    if head is not None:
        lines.insert(head + 1, f"{key} = {value}{end}")
        return
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    if any(line.lstrip().startswith("[") for line in lines) and section:
        lines += [f"{end}[{section}]{end}", f"{key} = {value}{end}"]
    else:
        lines.append(f"{key}={value}{end}")
