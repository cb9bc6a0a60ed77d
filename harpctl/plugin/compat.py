# SPDX-License-Identifier: Apache-2.0
"""Whether a file is a plugin for a host: its machine, its exports, and the glibc that it requires."""

from __future__ import annotations

import msgspec

from harpctl.errors import HarpError
from harpctl.facts.elf import Elf, inspect, version_key
from harpctl.facts.library_dirs import host_machine, search_dirs
from harpctl.host.host import Host


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """What a host offers a plugin; "" where a tree does not show it, and then nothing is refused for it."""

    machine: str = ""
    glibc: str = ""


def platform_of(host: Host) -> Platform:
    """Find out what a host offers: its machine, and the newest symbols that its libc.so.6 defines."""
    for folder in search_dirs(host):
        path = f"{folder}/libc.so.6"
        if file := host.open_file(path):
            with file:
                try:
                    return Platform(machine=host_machine(host), glibc=inspect(file, path).glibc_defined)
                except HarpError:
                    continue
    return Platform(machine=host_machine(host))


def incompatibility(elf: Elf, platform: Platform) -> str:
    """Return why a library is no plugin for a host, as what follows its path in a sentence; else ""."""
    if not elf.abis:
        return "is no NCCL network plugin: it exports no ncclNetPlugin_vN"
    if platform.machine and elf.machine != platform.machine:
        return f"is for {elf.machine}, and this host is {platform.machine}"
    if platform.glibc and version_key(elf.glibc) > version_key(platform.glibc):
        return f"needs glibc {elf.glibc}, and this host has {platform.glibc}"
    return ""
