# SPDX-License-Identifier: Apache-2.0
"""`harpctl install`, `enable`, `disable` and `status`: the plugin of a host, of an image, of many hosts."""

from __future__ import annotations

import functools
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec
from rich.table import Table
from rich.text import Text

from harpctl.change.apply import apply_plan
from harpctl.change.diff import render_diff
from harpctl.change.os_errors import require_root
from harpctl.change.rollback import recover_interrupted
from harpctl.command_line import (
    command,
    dry_run_option,
    flag,
    json_option,
    option,
    plugin_option,
    root_option,
    yes_option,
)
from harpctl.console import OUT, ConsoleProgress, NoProgress, Progress, print_json, print_lines, print_table
from harpctl.errors import ExitCode
from harpctl.facts.library_dirs import search_dirs
from harpctl.facts.plugin_files import NAME, SUFFIXED
from harpctl.fleet import Answer, over_hosts
from harpctl.host.host import Host, open_host
from harpctl.plugin.source import find_source
from harpctl.plugin.status import BESIDE, ENABLED, FOREIGN, File, Nccl, Status, export_hint, read_status
from harpctl.plugin.switch import Source, Switch, plan_disable, plan_enable, plan_install

FILES = {"plain": NAME, "harp": SUFFIXED}  # the two names that the plugin goes by, those of NCCL


def without_root(source: Source, folder: str) -> str:
    """Return the line after which jobs from here use a plugin, copied to a folder if one is given."""
    path = str(Path(source.path).resolve())
    if not folder:
        return f"Without root, for jobs from here: {export_hint(shlex.quote(path))}"
    target = f"{folder.rstrip('/')}/{SUFFIXED}"
    copy = shlex.join(["install", "-D", "-m", "755", path, target])
    return f"Without root, for jobs from here: {copy} && {export_hint(shlex.quote(target))}"


class SwitchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of install, enable and disable with --json."""

    action: str
    ok: bool
    summary: str
    changed: bool  # with --dry-run: would change something
    state: str  # as of `status`, afterwards
    path: str = ""  # where the plugin is; "" when it is nowhere
    transaction: str = ""  # its id for `harpctl rollback`; "" when nothing changed
    notes: tuple[str, ...] = ()
    plan: str = ""  # what --dry-run shows


def run_switch(
    host: Host, action: str, make: Callable[[], Switch], progress: Progress, *, dry_run: bool
) -> SwitchResult:
    """Plan a switch, carry it out, and check the result; with dry_run report what would be done."""
    if not dry_run:
        recover_interrupted(host, progress=progress)
    switch = make()
    changed = not switch.plan.is_empty
    summary = switch.done if changed else switch.already
    transaction = "" if dry_run else apply_plan(switch.plan, host, what=action, progress=progress)
    after = read_status(host)
    result = SwitchResult(
        action=action,
        ok=True,
        summary="Nothing changed: a dry run." if dry_run and changed else summary,
        changed=changed,
        state=after.state,
        path=switch.path,
        transaction=transaction,
    )
    if dry_run:
        return msgspec.structs.replace(result, plan=render_diff(switch.plan, host))
    notes = list(after.notes)
    is_found = after.path == switch.path and after.state in {ENABLED, BESIDE, FOREIGN}
    ok = after.state not in {ENABLED, BESIDE} if action == "disable" else is_found
    if action != "disable" and after.state == BESIDE and is_found:
        notes.insert(0, after.summary)
    elif action != "disable" and not is_found:
        notes.insert(0, f"It is not loaded by name: {after.summary}")
        ok = switch.path.rpartition("/")[0] not in search_dirs(host)  # a directory of the operator's choice
    return msgspec.structs.replace(result, ok=ok, notes=tuple(notes))


def _do_switch(host: Host, action: str, make: Callable[[], Switch], *, dry_run: bool, as_json: bool) -> None:
    progress: Progress = NoProgress() if as_json else ConsoleProgress()
    result = run_switch(host, action, make, progress, dry_run=dry_run)
    if as_json:
        print_json(result)
    else:
        print_lines(result.plan)
        for line in (result.summary, *(f"Note: {note}" for note in result.notes)):
            OUT.print(line, markup=False)
    if not result.ok:
        raise click.exceptions.Exit(int(ExitCode.FAILED))


@over_hosts
@command()
@plugin_option
@option("--dir", "folder", metavar="DIR", default="", help="Install here; else in the library directory.")
@option(
    "--name",
    type=click.Choice(list(FILES)),
    help="plain: libnccl-net.so; harp: libnccl-net-harp.so; of RCCL alike. Else what is free.",
)
@flag("--force", help="Move another plugin aside, install where HARP has been disabled.")
@dry_run_option
@yes_option
@root_option
@json_option
def install(
    *,
    plugin: Path | None,
    folder: str,
    name: str | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    root: Path | None,
    as_json: bool,
) -> None:
    """Put the plugin where NCCL or RCCL finds it. `harpctl rollback` removes it.

    It becomes libnccl-net.so, or libnccl-net-harp.so where another plugin has that name, which stays as it
    is: then NCCL_NET_PLUGIN=harp makes a job use HARP. Where RCCL is, it becomes librccl-net.so as well, or
    librccl-net-harp.so. A running job keeps the file that it has loaded.
    Refused: a file that is no plugin for this machine or needs a newer glibc, and a host where HARP was
    disabled.
    """
    del yes  # only -H asks
    host = open_host(root)

    def make() -> Switch:
        source = find_source(host, plugin)
        switch = plan_install(host, source, folder, name=FILES[name] if name else "", force=force)
        if not (switch.plan.is_empty or dry_run):
            require_root(host, without_root(source, folder))
        return switch

    _do_switch(host, "install", make, dry_run=dry_run, as_json=as_json)


@over_hosts
@command()
@flag("--force", help="Enable a plugin that is not HARP, too.")
@dry_run_option
@yes_option
@root_option
@json_option
def enable(*, force: bool, dry_run: bool, yes: bool, root: Path | None, as_json: bool) -> None:
    """Turn HARP on: rename the disabled plugin to its own name.

    It looks for bak.libnccl-net.so, libnccl-net.so_bak and libncc-net.so in library directories, /mnt and
    /root, and for libnccl-net.so itself in the last two; for the same names of libnccl-net-harp.so and of
    RCCL's two files; and beside a path that NCCL_NET_PLUGIN names. It refuses where it finds several of
    one name.
    """
    del yes  # only -H asks
    host = open_host(root)
    _do_switch(host, "enable", lambda: plan_enable(host, force=force), dry_run=dry_run, as_json=as_json)


@over_hosts
@command()
@dry_run_option
@yes_option
@root_option
@json_option
def disable(*, dry_run: bool, yes: bool, root: Path | None, as_json: bool) -> None:
    """Turn HARP off: rename libnccl-net.so to bak.libnccl-net.so, so that NCCL uses its own sockets.

    The same for libnccl-net-harp.so, RCCL's two files, and a HARP at a path that NCCL_NET_PLUGIN names.
    ldconfig does not turn it on again. Running jobs keep the file that they have loaded. Refused where
    both names are there; other plugins of a host stay.
    """
    del yes  # only -H asks
    host = open_host(root)

    def make() -> Switch:
        switch = plan_disable(host)
        if not (switch.plan.is_empty or dry_run):
            require_root(host, "Without root, for jobs from here: export HARP_DISABLE=1")
        return switch

    _do_switch(host, "disable", make, dry_run=dry_run, as_json=as_json)


def compare_builds(answers: Sequence[Answer]) -> list[Answer]:
    """Mark the hosts whose plugin is another build than that of most hosts."""
    builds: dict[str, tuple[str, str]] = {}
    for answer in answers:
        if answer.result == "ok" and isinstance(answer.answer, dict):
            version, build = (answer.answer.get(name, "") for name in ("version", "build"))
            builds[answer.host] = (str(version), str(build))
    if len(set(builds.values())) < 2:
        return list(answers)
    (version, build), count = Counter(builds.values()).most_common(1)[0]
    others = {host: found for host, found in builds.items() if found != (version, build)}
    return [
        msgspec.structs.replace(
            answer,
            result="differs",
            code=int(ExitCode.FAILED),
            detail=f"{answer.detail} It is build {others[answer.host][1] or 'unknown'};"
            f" {count} of {len(builds)} hosts have HARP {version}, build {build or 'unknown'}.",
            remedy=f"Install the same file on all hosts: harpctl install --plugin FILE -H {answer.host}",
        )
        if answer.host in others
        else answer
        for answer in answers
    ]


@functools.partial(over_hosts, compare=compare_builds)
@command()
@root_option
@json_option
def status(*, root: Path | None, as_json: bool) -> None:
    """Show whether NCCL and RCCL find HARP here, and what decides that.

    Exit code 0: enabled. 1: beside another plugin and not chosen by a setting, disabled, absent, broken, or
    another plugin in its place; with -H also where the hosts have different builds.
    """
    found = read_status(open_host(root))
    if as_json:
        print_json(found)
    else:
        show_status(found)
    if found.state != ENABLED:
        raise click.exceptions.Exit(int(ExitCode.FAILED))


def show_status(found: Status) -> None:
    """Print a status: the sentence, the table, the notes."""
    OUT.print(found.summary, markup=False)
    rows = [("plugin" if file.is_loaded else file.form, file.path, _file_text(file)) for file in found.files]
    rows += [(f"{one.name} {one.version}".strip(), one.path, _nccl_text(one)) for one in found.libraries]
    rows += [("conf", path, "") for path in found.conf_files]
    rows += [("setting", setting.source, f"{setting.name}={setting.value}") for setting in found.settings]
    if rows:
        table = Table(box=None, pad_edge=False, show_header=False)
        for _column in range(3):
            table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        print_table(table)
    for note in found.notes:
        OUT.print(f"Note: {note}", markup=False)


def _file_text(file: File) -> str:
    if file.problem or not file.abis:
        return file.problem
    abis = f"v{file.abis[-1]} to v{file.abis[0]}" if len(file.abis) > 1 else f"v{file.abis[0]}"
    build = f", build {file.build}" if file.build else ""
    return f"{file.name} {file.version}".strip() + f"{build}, {file.machine}, interfaces {abis}"


def _nccl_text(library: Nccl) -> str:
    takes = f"takes {library.plugin} {library.why}".rstrip() if library.plugin else "takes no plugin"
    takes += f" (loaded by {library.loader})" if library.loader else ""
    return f"{takes}, interface v{library.abi}" if library.abi and library.plugin else takes
