# SPDX-License-Identifier: Apache-2.0
"""Whether a file is a plugin for a host: its machine, its exports, and the glibc that it asks for."""

from __future__ import annotations

import msgspec

from harpctl.errors import HarpError
from harpctl.facts.elf import Elf, inspect, version_key
from harpctl.facts.library_dirs import host_machine, search_dirs
from harpctl.host.door import Host


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What a host offers a plugin; "" where a tree does not tell, and then nothing is held against it."""

    machine: str = ""
    glibc: str = ""


def ground(host: Host) -> Ground:
    """Find out what a host offers: its machine, and the newest symbols that its libc.so.6 defines."""
    for folder in search_dirs(host):
        path = f"{folder}/libc.so.6"
        if file := host.open_file(path):
            with file:
                try:
                    return Ground(machine=host_machine(host), glibc=inspect(file, path).glibc_defined)
                except HarpError:
                    continue
    return Ground(machine=host_machine(host))


def misfit(elf: Elf, place: Ground) -> str:
    """Say why a shared library is no plugin for a host, as what follows its path in a sentence; else ""."""
    if not elf.abis:
        return "is no NCCL network plugin: it exports no ncclNetPlugin_vN"
    if place.machine and elf.machine != place.machine:
        return f"is for {elf.machine}, and this host is {place.machine}"
    if place.glibc and version_key(elf.glibc) > version_key(place.glibc):
        return f"needs glibc {elf.glibc}, and this host has {place.glibc}"
    return ""
