# SPDX-License-Identifier: Apache-2.0
"""Whether NCCL on a host finds HARP, and if not, what it finds instead."""

from __future__ import annotations

import os

import msgspec

from harpctl.confs.files import find_confs
from harpctl.host.door import Host
from harpctl.plugin.fit import Ground, ground, misfit
from harpctl.plugin.nccl import abi_picked
from harpctl.plugin.paths import INSTALLED, NAME, Copy, find_copies, find_libraries
from harpctl.plugin.search import environment_dirs
from harpctl.plugin.settings import Setting, find_settings

ENABLED = "enabled"
DISABLED = "disabled"
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
    is_loaded: bool = False  # the one that NCCL finds by the plain name
    problem: str = ""


class Nccl(msgspec.Struct, frozen=True, kw_only=True):
    """An NCCL library, and the interface version by which it would speak to the plugin."""

    path: str
    version: str = ""
    abi: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What `status --json` prints."""

    state: str  # "enabled", "disabled", "absent", "foreign", "broken"
    summary: str
    path: str = ""  # the file that the state speaks of
    version: str = ""
    build: str = ""  # tells builds of one version apart
    files: tuple[File, ...] = ()
    libraries: tuple[Nccl, ...] = ()
    conf_files: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()


def loaded(copies: tuple[Copy, ...], place: Ground) -> Copy | None:
    """Give the copy that the loader takes, loadable or not."""
    installed = (copy for copy in copies if copy.form == INSTALLED)
    return next((copy for copy in installed if copy.is_seen_by(place.machine)), None)


def _state(winner: Copy | None, copies: tuple[Copy, ...], place: Ground) -> tuple[str, str, Copy | None]:
    """Give the state, the sentence that says it, and the copy that it speaks of."""
    if winner is not None and (winner.elf is None or winner.problem):
        return BROKEN, f"NCCL finds no network plugin: {winner.problem}", winner
    if winner is not None and winner.elf is not None:
        unfit = misfit(winner.elf, place)
        if unfit:
            return BROKEN, f"NCCL cannot load {winner.path}: it {unfit}.", winner
        if winner.is_harp:
            return ENABLED, f"{winner.what} is enabled: {winner.path}.", winner
        return FOREIGN, f"NCCL finds {winner.what}, not HARP: {winner.path}.", winner
    parked = next((copy for copy in copies if copy.form != INSTALLED and copy.is_harp), None)
    if parked is not None:
        return DISABLED, f"{parked.what} is disabled: {parked.path}.", parked
    return ABSENT, f"HARP is not installed: no {NAME} where the loader searches.", None


def _notes(winner: Copy | None, copies: tuple[Copy, ...], place: Ground) -> list[str]:
    notes = []
    for copy in copies:
        if copy is winner:
            continue
        if copy.form == INSTALLED:
            first = f"; {winner.path} comes first" if winner else ""
            notes.append(f"{copy.path} is {copy.what} too{first}." if not copy.problem else copy.problem)
        elif copy.problem:
            notes.append(copy.problem)
        elif copy.elf and (unfit := misfit(copy.elf, place)):
            notes.append(f"{copy.path} {unfit}.")
        elif copy.elf and copy.elf.soname == NAME and not copy.path.rpartition("/")[2].startswith("bak."):
            notes.append(f"ldconfig will enable {copy.path} again: its SONAME is {NAME}.")
    parked = [copy.path for copy in copies if copy.form != INSTALLED]
    if len(parked) > 1:
        notes.append(f"There are {len(parked)} parked copies: {', '.join(parked)}.")
    return notes


def read_status(host: Host) -> Status:
    """Look at the plugin, NCCL's libraries, conf files and settings of a host. Needs no root."""
    place, copies = ground(host), find_copies(host)
    winner = loaded(copies, place)
    state, summary, spoken = _state(winner, copies, place)
    settings = find_settings(host)
    notes = _notes(winner, copies, place)
    if host.is_real and state == ABSENT and os.geteuid() != 0:
        notes.append("Without root it cannot be seen whether it was moved to /root.")
    for folder in environment_dirs(host):
        if host.exists(f"{folder}/{NAME}"):
            notes.append(f"LD_LIBRARY_PATH leads to {folder}/{NAME} first, for jobs that are given it.")
    notes += [setting.obstacle for setting in settings if setting.obstacle]
    exported = spoken.elf.abis if spoken and spoken.elf else ()
    libraries = []
    for library in find_libraries(host):
        abi = abi_picked(library.version, exported)
        libraries.append(Nccl(path=library.path, version=library.version, abi=abi))
        if exported and library.version and abi is None:
            notes.append(f"NCCL {library.version} ({library.path}) finds no interface that it knows.")
    return Status(
        state=state,
        summary=summary,
        path=spoken.path if spoken else "",
        version=spoken.elf.version if spoken and spoken.elf else "",
        build=spoken.elf.build if spoken and spoken.elf else "",
        files=tuple(_file(copy, copy is winner) for copy in copies),
        libraries=tuple(libraries),
        conf_files=tuple(find_confs(host)),
        settings=settings,
        notes=tuple(notes),
    )


def _file(copy: Copy, is_loaded: bool) -> File:
    file = File(
        path=copy.path, form=copy.form, is_harp=copy.is_harp, is_loaded=is_loaded, problem=copy.problem
    )
    if copy.elf is None:
        return file
    elf = copy.elf
    return msgspec.structs.replace(
        file, name=elf.name, version=elf.version, build=elf.build, machine=elf.machine, abis=elf.abis
    )
