# SPDX-License-Identifier: Apache-2.0
"""Finds out whether NCCL on a host finds HARP, and if not, what it finds instead."""

from __future__ import annotations

import os

import msgspec

from harpctl.confs.files import find_confs
from harpctl.facts.library_dirs import environment_dirs
from harpctl.facts.plugin_files import INSTALLED, NAME, Copy, inspect_copy, parked_as
from harpctl.host.host import Host
from harpctl.plugin.choice import (
    NCCL,
    Family,
    deciding_setting,
    find_all,
    find_obstacle,
    has_name_of,
    is_loadable_harp,
    second_name_hint,
)
from harpctl.plugin.compat import Platform, abi_picked, platform_of, why_incompatible
from harpctl.plugin.search import Taken, TakenByJobs, find_taken, look_for_plugins
from harpctl.plugin.settings import PLUGIN_VARIABLE, SetVariable, find_settings
from harpctl.plugin.source import own_path

ENABLED = "enabled"
DISABLED = "disabled"
BESIDE = "beside"
ABSENT = "absent"
FOREIGN = "foreign"
BROKEN = "broken"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file under one of the plugin's names."""

    path: str
    form: str  # "installed", "bak.", "_bak", "moved", "typo"
    name: str = ""  # what it calls itself
    version: str = ""
    build: str = ""
    machine: str = ""
    abis: tuple[int, ...] = ()
    is_harp: bool = False
    is_loaded: bool = False  # the one that NCCL takes
    problem: str = ""


class Nccl(msgspec.Struct, frozen=True, kw_only=True):
    """An NCCL or RCCL library, and the interface version by which it would speak to the plugin."""

    path: str
    name: str  # "NCCL" or "RCCL"
    version: str = ""
    loader: str = ""  # the library that loads it, such as PyTorch's; "" where that is not known
    plugin: str = ""  # the file that it takes here; "" where it finds none
    why: str = ""  # by which part of its search path
    abi: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `status --json`."""

    state: str  # "enabled", "beside", "disabled", "absent", "foreign", "broken"
    summary: str
    path: str = ""  # the file that the state speaks of
    version: str = ""
    build: str = ""  # distinguishes builds of one version
    files: tuple[File, ...] = ()
    libraries: tuple[Nccl, ...] = ()
    conf_files: tuple[str, ...] = ()
    settings: tuple[SetVariable, ...] = ()
    notes: tuple[str, ...] = ()


def find_unchosen(copies: tuple[Copy, ...], platform: Platform, family: Family = NCCL) -> Copy | None:
    """Return a HARP that is installed and that NCCL loads only where a setting names it."""
    ours = (copy for copy in copies if has_name_of(copy, family))
    return next((copy for copy in ours if copy.form == INSTALLED and is_loadable_harp(copy, platform)), None)


def export_hint(path: str) -> str:
    """Return the line after which jobs of a shell take a file."""
    return f"export {PLUGIN_VARIABLE}={path}"


def _decide_state(
    by_jobs: TakenByJobs, copies: tuple[Copy, ...], platform: Platform, decides: SetVariable | None
) -> tuple[str, str, Copy | None]:
    """Return the state, its sentence, and the copy that it describes."""
    winner, family = by_jobs.copy, by_jobs.family
    if winner is not None and (winner.elf is None or winner.problem):
        return BROKEN, f"{family.word} finds no network plugin: {winner.problem}", winner
    if winner is not None and winner.elf is not None and (unfit := why_incompatible(winner.elf, platform)):
        return BROKEN, f"{family.word} cannot load {winner.path}: it {unfit}.", winner
    by = f", {by_jobs.why}" if by_jobs.why else ""
    if winner is not None and winner.is_harp:
        return ENABLED, f"{winner.what} is enabled: {winner.path}{by}.", winner
    copy = find_unchosen(copies, platform, family)
    beside = f", beside {winner.what} ({winner.path}{by})" if winner else ""
    if copy is not None and (decides or copy.name == family.suffixed):
        why = find_obstacle(decides, copies, platform, (), family) if decides else second_name_hint(family)
        return BESIDE, f"{copy.what} is installed as {copy.path}{beside}. {why}", copy
    if copy := by_jobs.packaged:
        how = f"Nothing leads to it: {export_hint(copy.path)}"
        return BESIDE, f"{copy.what} is in this Python environment as {copy.path}{beside}. {how}", copy
    return _without_harp(by_jobs, copies)


def _without_harp(by_jobs: TakenByJobs, copies: tuple[Copy, ...]) -> tuple[str, str, Copy | None]:
    winner, family = by_jobs.copy, by_jobs.family
    if winner is not None:
        by = f", {by_jobs.why}" if by_jobs.why else ""
        return FOREIGN, f"{family.word} finds {winner.what}, not HARP: {winner.path}{by}.", winner
    parked = next((copy for copy in copies if copy.form != INSTALLED and copy.is_harp), None)
    if parked is not None:
        return DISABLED, f"{parked.what} is disabled: {parked.path}.", parked
    return ABSENT, f"HARP is not installed: no {family.plain} where the loader searches.", None


def _status_notes(winner: Copy | None, copies: tuple[Copy, ...], platform: Platform, family: Family) -> list[str]:
    notes = []
    for copy in copies:
        if copy is winner:
            continue
        if copy.form == INSTALLED and copy.name != family.plain:
            if copy.problem:
                notes.append(copy.problem)
        elif copy.form == INSTALLED:
            first = f" too; {winner.path} comes first" if winner else ""
            notes.append(copy.problem or f"{copy.path} is {copy.what}{first}.")
        elif copy.problem:
            notes.append(copy.problem)
        elif copy.elf and (unfit := why_incompatible(copy.elf, platform)):
            notes.append(f"{copy.path} {unfit}.")
        elif copy.elf and copy.elf.soname == NAME and not copy.path.endswith(f"/{parked_as(copy.name)}"):
            notes.append(f"ldconfig will enable {copy.path} again: its SONAME is {NAME}.")
    parked = [copy.path for copy in copies if copy.form != INSTALLED]
    if len(parked) > len({copy.name for copy in copies if copy.form != INSTALLED}):
        notes.append(f"There are {len(parked)} disabled copies: {', '.join(parked)}.")
    return notes


def _of_environment(host: Host) -> list[str]:
    """Say which file of the plain name LD_LIBRARY_PATH leads to, and which come after it there."""
    first, *others = [*filter(host.exists, (f"{folder}/{NAME}" for folder in environment_dirs(host))), ""]
    if not first:
        return []
    what = inspect_copy(host, first, INSTALLED, NAME, is_searched=False).what
    after = f", before {', '.join(others[:-1])}" if others[:-1] else ""
    return [f"LD_LIBRARY_PATH leads to {first} ({what}) first{after}, for jobs that are given it."]


def read_status(host: Host) -> Status:
    """Look at the plugin, NCCL's libraries, conf files and settings of a host. Needs no root."""
    platform, copies, settings = platform_of(host), find_all(host), find_settings(host)
    by_jobs = look_for_plugins(host, copies, settings, platform, find_taken(host, copies, settings, platform))
    winner, family, found = by_jobs.copy, by_jobs.family, by_jobs.taken
    decides = deciding_setting(settings, family)
    state, summary, described = _decide_state(by_jobs, copies, platform, decides)
    notes = _status_notes(winner, copies, platform, family)
    if host.is_real and state == ABSENT and os.geteuid() != 0:
        notes.append("Without root it cannot be seen whether it was moved to /root.")
    if state in {ABSENT, FOREIGN} and (path := own_path(host)):
        notes.append(f"This harpctl has it; for jobs from here, without root: {export_hint(path)}")
    releases = {t.library.version for t in found if t.library.version and t.family is family}
    settled = decides if by_jobs.is_led_to_harp(platform) else None
    obstacles = (
        find_obstacle(one, copies, platform, releases, family)
        for one in settings
        if one is not settled and family.heeds(one)
    )
    notes += [text for text in obstacles if text]
    notes += [f"{taken}." for taken in found if is_apart(taken, winner)]
    notes += _of_environment(host) if not found else []
    libraries = [_describe_nccl(taken, described) for taken in found]
    for one in libraries:
        if described and described.elf and described.elf.abis and one.version and one.abi is None:
            notes.append(f"{one.name} {one.version} ({one.path}) finds no interface that it knows.")
    return Status(
        state=state,
        summary=summary,
        path=described.path if described else "",
        version=described.elf.version if described and described.elf else "",
        build=described.elf.build if described and described.elf else "",
        files=tuple(_describe_file(copy, copy is winner) for copy in _with_seen(copies, winner, by_jobs.packaged)),
        libraries=tuple(libraries),
        conf_files=tuple(find_confs(host)),
        settings=settings,
        notes=tuple(notes),
    )


def _with_seen(copies: tuple[Copy, ...], *more: Copy | None) -> tuple[Copy, ...]:
    """Return the copies, after those of the environment that are not among them."""
    known = {copy.path for copy in copies}
    return (*(copy for copy in more if copy is not None and copy.path not in known), *copies)


def is_apart(taken: Taken, winner: Copy | None) -> bool:
    """Return whether an NCCL takes, by its own search path, another file than the one by default."""
    return (taken.copy.path if taken.copy else "") != (winner.path if winner else "")


def _describe_nccl(taken: Taken, described: Copy | None) -> Nccl:
    """Return an NCCL; its interface is that of what it takes, else of the copy that the state describes."""
    copy = taken.copy or described
    return Nccl(
        path=taken.library.path,
        name=taken.family.word,
        version=taken.library.version,
        loader=taken.loader,
        plugin=taken.copy.path if taken.copy else "",
        why=taken.why,
        abi=abi_picked(taken.library.version, copy.elf.abis if copy and copy.elf else ()),
    )


def _describe_file(copy: Copy, is_loaded: bool) -> File:
    file = File(path=copy.path, form=copy.form, is_harp=copy.is_harp, is_loaded=is_loaded, problem=copy.problem)
    if copy.elf is None:
        return file
    elf = copy.elf
    return msgspec.structs.replace(
        file, name=elf.name, version=elf.version, build=elf.build, machine=elf.machine, abis=elf.abis
    )
