# SPDX-License-Identifier: Apache-2.0
"""Judges a file as a plugin for a host: its machine, exports, glibc; which of its interfaces NCCL loads."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from harpctl.errors import HarpError
from harpctl.facts.elf import Elf, inspect_elf, version_key
from harpctl.facts.library_dirs import host_machine, search_dirs
from harpctl.host.host import Host

# Newest and oldest ncclNetPlugin_vN that releases from this one on look for, read at NCCL's tags.
ABIS = (
    ((2, 30), 12, 6),
    ((2, 28), 11, 6),
    ((2, 26), 10, 6),
    ((2, 24), 9, 5),
    ((2, 20), 8, 5),
    ((2, 19), 7, 5),
    ((2, 13), 6, 4),
    ((2, 12), 5, 4),
    ((2, 8), 4, 4),
    ((2, 6), 3, 3),
    ((2, 4), 2, 2),
)


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a host; "" where a tree does not show one, and then nothing is refused for it."""

    machine: str = ""
    glibc: str = ""


def platform_of(host: Host) -> Platform:
    """Find out what a host offers: its machine, and the newest symbols that its libc.so.6 defines."""
    for folder in search_dirs(host):
        path = f"{folder}/libc.so.6"
        if file := host.open_file(path):
            with file:
                try:
                    return Platform(machine=host_machine(host), glibc=inspect_elf(file, path).glibc_defined)
                except HarpError:
                    continue
    return Platform(machine=host_machine(host))


def why_incompatible(elf: Elf, platform: Platform) -> str:
    """Return why a library is no plugin for a host, as what follows its path in a sentence; else ""."""
    if not elf.abis:
        return "is no NCCL network plugin: it exports no ncclNetPlugin_vN"
    if platform.machine and elf.machine != platform.machine:
        return f"is for {elf.machine}, and this host is {platform.machine}"
    if platform.glibc and version_key(elf.glibc) > version_key(platform.glibc):
        return f"needs glibc {elf.glibc}, and this host has {platform.glibc}"
    return ""


def abi_picked(nccl: str, exported: Collection[int]) -> int | None:
    """Return the interface version that a release of NCCL picks among those exported; None: none.

    Also None when the release is unknown.
    """
    release = version_key(nccl)[:2]
    for since, newest, oldest in ABIS:
        if release >= since:
            return max((abi for abi in exported if oldest <= abi <= newest), default=None)
    return None
