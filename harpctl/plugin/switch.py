# SPDX-License-Identifier: Apache-2.0
"""Plans to install, disable and enable. Obstacles are raised before any change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harpctl.change.steps import AnyStep, Group, Plan, RemoveFile, Rename, Run, WriteFile, drop_held_steps
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.elf import Elf
from harpctl.facts.library_dirs import library_dir, search_dirs, system_dirs
from harpctl.facts.model import Library
from harpctl.facts.plugin_files import INSTALLED, NAME, SUFFIXED, Copy, inspect_copy, library_files, parked_as
from harpctl.host.host import Host
from harpctl.plugin.choice import (
    NCCL,
    RCCL,
    Family,
    candidate_files,
    chosen_copy,
    deciding_setting,
    family_of,
    find_all,
    has_name_of,
)
from harpctl.plugin.compat import platform_of, why_incompatible
from harpctl.plugin.settings import find_settings

MODE = 0o755


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin file to install."""

    path: str  # on the machine that harpctl runs on
    data: bytes
    elf: Elf
    host_path: str = ""  # where it lies on the host itself; "" when it does not


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and its messages."""

    plan: Plan
    path: str  # where the plugin is afterwards; "" when there is none
    done: str  # a sentence, true when the plan has been applied
    already: str  # a sentence, true when there is nothing to do


def _make_switch(host: Host, name: str, steps: Sequence[AnyStep], path: str, messages: tuple[str, str]) -> Switch:
    plan = drop_held_steps(Plan(groups=(Group(name=name, steps=tuple(steps)),)), host)
    return Switch(plan=plan, path=path, done=messages[0], already=messages[1])


def _join_copies(copies: Sequence[Copy]) -> str:
    return ", ".join(f"{copy.path} ({copy.what})" for copy in copies)


def plan_install(host: Host, source: Source, folder: str = "", *, name: str = "", force: bool = False) -> Switch:
    """Plan to put a plugin into the library directory, or over every HARP that is installed.

    Without a name it gets the plain one, or the second one where another plugin has the plain one or would be
    found before it; where several names are HARP's already, all of them. The same by RCCL's names where RCCL
    or one of them is here. Raises HarpError when the file is none for this host, when something else holds
    the name, and when HARP has been disabled here. `force` moves others aside and leaves parked copies.
    """
    unfit = why_incompatible(source.elf, platform_of(host))
    if unfit:
        raise HarpError(
            f"{source.path} {unfit}.",
            "Take a plugin for this kind of host, which `./harp_setup build --portable` makes in a checkout"
            " for glibc 2.27 or newer: harpctl install --plugin FILE",
            ExitCode.REFUSED,
        )
    if not source.elf.is_harp and not force:
        raise HarpError(
            f"{source.path} is the plugin {source.elf.name or 'of somebody'}, not HARP.",
            "Install it all the same with --force.",
            ExitCode.REFUSED,
        )
    copies = list(find_all(host))
    machine = source.elf.machine
    paths: list[str] = []
    for family in _choose_families(host, copies):
        own_name = {NAME: family.plain, SUFFIXED: family.suffixed}.get(name, name)
        own = _install_paths(host, source, copies, folder, own_name, family)
        others = _in_the_way(host, own, machine, copies)
        are_plugins = all(copy.elf is not None and copy.elf.abis for copy in others)
        if others and are_plugins and not (force or name):
            free = [path for path in own if not _in_the_way(host, [path], machine, copies)]
            own = free or [f"{own[0].rpartition('/')[0]}/{family.suffixed}"]
        paths += own
    others = _in_the_way(host, paths, machine, copies)
    if others and not force:
        raise HarpError(
            f"Another {others[0].name} is on this host, and NCCL would load that one: {_join_copies(others)}.",
            f"Remove it, or let --force move it aside to {aside_as(others[0].name)}.",
            ExitCode.REFUSED,
        )
    parked = [copy for copy in copies if copy.form != INSTALLED and copy.is_harp]
    parked = [copy for copy in parked if copy.path != source.host_path]
    if parked and not force and not any(copy.path in paths and copy.is_harp for copy in copies):
        raise HarpError(
            f"HARP is disabled on this host: {_join_copies(parked)}. Installing would turn it on again.",
            "Turn it on with `harpctl enable` and then install; or install beside it with --force.",
            ExitCode.REFUSED,
        )
    steps = _aside_steps(host, others)
    for path in paths:
        is_new = host.stat(path) is None or any(copy.path == path for copy in others)
        mode = MODE if is_new else None
        steps.append(WriteFile(why="the plugin that NCCL loads", path=path, data=source.data, mode=mode))
    what = f"HARP {source.elf.version}".strip() if source.elf.is_harp else f"The plugin {source.elf.name}"
    where = ", ".join(paths)
    messages = (f"{what} is installed: {where}.", f"{what} is installed already: {where}.")
    return _make_switch(host, "plugin", [*steps, *_plan_refresh(host, paths, copies)], paths[0], messages)


def aside_as(name: str) -> str:
    """Return what --force renames another file of a name to: no form that `enable` looks for."""
    return f"replaced.{name}"


def _choose_families(host: Host, copies: Sequence[Copy]) -> list[Family]:
    """Return by whose names to install, first those that decide the host's status.

    NCCL's always: RCCL of ROCm 7.1 and 7.2 looks for its plain name.
    """
    libraries = [Library(path=path) for path in library_files(host)]
    ours = (copy for copy in copies if copy.form == INSTALLED and copy.is_harp)
    if family_of(libraries) is RCCL:
        return [RCCL, NCCL]
    has_rccl = any(one.is_rccl for one in libraries) or any(has_name_of(copy, RCCL) for copy in ours)
    return [NCCL, RCCL] if has_rccl else [NCCL]


def _install_paths(
    host: Host, source: Source, copies: list[Copy], folder: str, name: str, family: Family
) -> list[str]:
    """Return where the plugin goes, first what NCCL takes; what lies there is among the copies afterwards."""
    settings = find_settings(host)
    decides = deciding_setting(settings, family)
    wanted = candidate_files(decides.value if decides else None, family=family)
    ours = [copy for copy in copies if copy.form == INSTALLED and copy.is_harp and name in {"", copy.name}]
    ours = [copy for copy in ours if has_name_of(copy, family)]
    if ours and not folder:
        first = chosen_copy(ours, settings, platform_of(host), family)
        found = {copy.name: copy.path for copy in (*reversed(ours), *filter(None, [first]))}
        return sorted(found.values(), key=lambda path: first is None or path != first.path)
    name = name or next((file for file in wanted if file in {family.plain, family.suffixed}), family.plain)
    path = f"{_install_dir(host, source, folder)}/{name}"
    if host.stat(path) is not None and all(copy.path != path for copy in copies):
        copies.append(inspect_copy(host, path, INSTALLED, name, is_searched=False))
    return [path]


def _install_dir(host: Host, source: Source, folder: str) -> str:
    if not folder:
        return library_dir(host, source.elf.machine)
    place = host.leads_to(folder) if folder.startswith("/") and host.is_dir(folder) else None
    if place is None:
        raise HarpError(
            f"--dir {folder}: there is no such directory on this host.",
            "Give an absolute path of the host, one that its loader searches.",
            ExitCode.USAGE,
        )
    return place


def _in_the_way(host: Host, paths: Sequence[str], machine: str, copies: Sequence[Copy]) -> list[Copy]:
    """Return what holds one of the paths, or is found by the loader before it, and is not HARP."""
    first: set[str] = set()
    for path in paths:
        files = [f"{folder}/{path.rpartition('/')[2]}" for folder in search_dirs(host)]
        first.update(files[: files.index(path)] if path in files else [])
    others = [copy for copy in copies if copy.form == INSTALLED and not copy.is_harp]
    return [copy for copy in others if copy.path in paths or (copy.path in first and copy.is_seen_by(machine))]


def _aside_steps(host: Host, others: Sequence[Copy]) -> list[AnyStep]:
    """Return the steps that rename other plugins, each in its own folder."""
    steps: list[AnyStep] = []
    for copy in others:
        aside = f"{copy.folder}/{aside_as(copy.name)}"
        if host.stat(aside) is not None:
            raise HarpError(
                f"{copy.path} cannot be moved aside: {aside} is there already.",
                f"Move {aside} away.",
                ExitCode.REFUSED,
            )
        steps.append(Rename(why="another plugin, moved aside", path=copy.path, to=aside))
    return steps


def plan_disable(host: Host) -> Switch:
    """Plan to rename every HARP that the loader finds to the prefixed form, each beside itself.

    Raises HarpError when one has both names, and when a file under the name cannot be read.
    """
    copies = find_all(host)
    installed = [copy for copy in copies if copy.form == INSTALLED]
    if unreadable := [copy for copy in installed if not copy.can_be_read]:
        raise HarpError(unreadable[0].problem, "Run it as root: sudo harpctl disable", ExitCode.REFUSED)
    ours = [copy for copy in installed if copy.is_harp]
    for copy in ours:
        to = f"{copy.folder}/{parked_as(copy.name)}"
        if host.stat(to) is not None:
            raise HarpError(
                f"Both {copy.path} and {to} are there, so disabling would overwrite one.",
                f"Compare them with `harpctl status`; to keep the installed one: rm {to}",
                ExitCode.REFUSED,
            )
    steps = [Rename(why="HARP off", path=copy.path, to=f"{copy.folder}/{parked_as(copy.name)}") for copy in ours]
    parked = [step.to for step in steps]
    parked += [copy.path for copy in copies if copy.form != INSTALLED and copy.is_harp]
    if not parked:
        return _make_switch(
            host, "plugin off", (), "", ("", "HARP is not installed; there is nothing to disable.")
        )
    messages = (f"HARP is disabled: {parked[0]}.", f"HARP is disabled already: {parked[0]}.")
    return _make_switch(host, "plugin off", steps, parked[0], messages)


def plan_enable(host: Host, *, force: bool = False) -> Switch:
    """Plan to give each parked copy its name back, in its own directory or the library directory.

    Raises HarpError when none is parked, or several of one name, when one is damaged or for another machine,
    and when another plugin holds the name or would be found first. `force` enables what is not HARP.
    """
    copies = find_all(host)
    first = _choose_families(host, copies)[0]
    copies = tuple(sorted(copies, key=lambda copy: not has_name_of(copy, first)))
    ours = [copy for copy in copies if copy.form == INSTALLED and copy.is_harp]
    parked = [] if ours else _one_of_each([copy for copy in copies if copy.form != INSTALLED])
    steps: list[AnyStep] = []
    paths = []
    for copy in parked or ours[:1]:
        elf = _check_copy(host, copy, force=force)
        beside = copy.is_searched or bool(copy.aliases)
        path = copy.installs_as if beside else f"{library_dir(host, elf.machine)}/{copy.name}"
        if others := _in_the_way(host, [path], elf.machine, copies):
            raise HarpError(
                f"Another {copy.name} is on this host, and NCCL would load that one: {_join_copies(others)}.",
                f"Remove its package, or move it away; {copy.path} is HARP's.",
                ExitCode.REFUSED,
            )
        paths.append(path)
        if not ours:
            steps += _restore_steps(host, copy, path, beside=beside)
    found = (parked or ours)[0].what
    messages = (f"{found} is enabled: {', '.join(paths)}.", f"{found} is enabled already: {paths[0]}.")
    return _make_switch(host, "plugin on", [*steps, *_plan_refresh(host, paths, copies)], paths[0], messages)


def _restore_steps(host: Host, copy: Copy, path: str, *, beside: bool) -> list[AnyStep]:
    """Return the steps that give a parked copy its name back, in its own folder (beside) or another one."""
    why = "HARP on"
    if beside:
        return [Rename(why=why, path=copy.path, to=path)]
    data = host.read_bytes(copy.path) or b""  # perhaps from another file system
    return [WriteFile(why=why, path=path, data=data, mode=MODE), RemoveFile(why=why, path=copy.path)]


def _plan_refresh(host: Host, paths: Sequence[str], copies: Sequence[Copy]) -> list[AnyStep]:
    """Renew the loader's cache where it decides: in folders that only it knows, or among several copies."""
    alone = all(copy.path in paths for copy in copies if copy.form == INSTALLED)
    folders, known = {path.rpartition("/")[0] for path in paths}, system_dirs(host)
    if not host.runs_commands or (alone and folders <= {*known}):
        return []
    command = ("ldconfig",)
    if host.which(command[0]) is None:
        if folders <= {*known}:
            return []  # there is no cache, or none that follows anything
        raise HarpError(
            f"This host has no ldconfig; without its cache no library is found in {min(folders)}.",
            f"Install it (package libc-bin or glibc), or use a folder that the loader knows: {known[0]}",
            ExitCode.MISSING,
        )
    return [Run(why="the loader's cache", argv=command, rewrites=("/etc/ld.so.cache",), again=command)]


def _one_of_each(parked: Sequence[Copy]) -> list[Copy]:
    """Return the parked copy of each name."""
    if not parked:
        raise HarpError(
            f"HARP is not on this host: no {NAME}, installed or disabled.",
            "Run: harpctl install",
            ExitCode.MISSING,
        )
    for name in dict.fromkeys(copy.name for copy in parked):
        same = [copy for copy in parked if copy.name == name]
        if len(same) > 1:
            raise HarpError(
                f"There are {len(same)} disabled copies, and only one can be enabled: {_join_copies(same)}.",
                f"Remove the others, for example: rm {same[-1].path}",
                ExitCode.REFUSED,
            )
    return list(parked)


def _check_copy(host: Host, copy: Copy, *, force: bool) -> Elf:
    """Refuse to enable what is no plugin for this host, and what is not HARP unless forced."""
    if copy.elf is None or copy.problem:
        raise HarpError(
            f"The disabled copy cannot be enabled: {copy.problem}",
            f"Remove it (rm {copy.path}) and run: harpctl install",
            ExitCode.WRONG_DATA,
        )
    unfit = why_incompatible(copy.elf, platform_of(host))
    if unfit or not (copy.is_harp or force):
        raise HarpError(
            f"{copy.path} {unfit or f'is {copy.what}, not HARP'}.",
            "Remove it and run: harpctl install" if unfit else "Enable it all the same with --force.",
            ExitCode.REFUSED,
        )
    return copy.elf
