# SPDX-License-Identifier: Apache-2.0
"""The plugin and NCCL's libraries on a host: their names, and where to look for them.

A plugin is off when its file is not found under its name. Operators were taught five ways of that, and all
are found here: a prefix, a suffix, moved to /mnt or /root, and a name misspelt when it was turned on again.
"""

from __future__ import annotations

import os
import sys

import msgspec
from msgspec.structs import replace

from harpctl.errors import HarpError
from harpctl.facts.model import Library, PluginFile
from harpctl.host.door import Host
from harpctl.plugin.elf import Elf, inspect
from harpctl.plugin.nccl import library_version
from harpctl.plugin.search import environment_dirs, search_dirs

NAME = "libnccl-net.so"
PARKED = f"bak.{NAME}"  # the form that `harpctl disable` uses: ldconfig looks at lib* alone
INSTALLED = "installed"
FORMS = {NAME: INSTALLED, PARKED: "bak.", f"{NAME}_bak": "_bak", "libncc-net.so": "typo"}
MOVED = "moved"
MOVED_DIRS = ("/mnt", "/root")
PYTHON_DIRS = (
    "/usr/lib/python3*/*-packages",
    "/usr/lib64/python3*/*-packages",
    "/usr/local/lib/python3*/*-packages",
    "/usr/local/lib64/python3*/*-packages",
    "/opt/*/lib/python3*/site-packages",
    "/opt/*/envs/*/lib/python3*/site-packages",
    "/root/.local/lib/python3*/site-packages",
    "/root/*conda*/lib/python3*/site-packages",
    "/root/*conda*/envs/*/lib/python3*/site-packages",
    "/home/*/.local/lib/python3*/site-packages",
    "/home/*/*conda*/lib/python3*/site-packages",
    "/home/*/*conda*/envs/*/lib/python3*/site-packages",
)
PYTHON_LIBRARIES = ("nvidia/nccl/lib", "nvidia/nccl*/lib", "torch/lib")
LIBRARY_DIRS = (
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/local/nccl*/lib",
    "/opt/nccl*/lib",
    "/opt/*conda*/lib",
    "/opt/*conda*/envs/*/lib",
    "/opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/nccl/lib",
    "/root/*conda*/lib",
    "/root/*conda*/envs/*/lib",
    "/home/*/*conda*/lib",
    "/home/*/*conda*/envs/*/lib",
)


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """Whatever lies under one of the plugin's names."""

    path: str
    form: str  # as PluginFile's
    folder: str
    target: str = ""  # where a link leads
    elf: Elf | None = None
    problem: str = ""  # why it cannot be loaded, a sentence; "" when it can
    can_be_read: bool = True
    can_be_opened: bool = True  # by the loader; it passes by what it cannot open

    @property
    def is_harp(self) -> bool:
        """Say whether it is HARP's plugin."""
        return self.elf is not None and self.elf.is_harp

    def is_seen_by(self, machine: str) -> bool:
        """Say whether the loader of a machine stops here; it passes by what is for another one."""
        return self.can_be_opened and (self.elf is None or machine in {"", self.elf.machine})

    @property
    def what(self) -> str:
        """Say what it is: "HARP", "the plugin AWS Libfabric", "no plugin"."""
        if not self.can_be_read:
            return "unreadable"
        if self.elf is None or not self.elf.abis:
            return "no plugin"
        if self.elf.is_harp:
            return f"HARP {self.elf.version}".strip()
        return f"the plugin {self.elf.name}" if self.elf.name else "an unnamed plugin"

    def fact(self) -> PluginFile:
        """Give it as a fact of the host."""
        version = self.elf.version if self.elf else ""
        return PluginFile(
            path=self.path, form=self.form, target=self.target, version=version, is_harp=self.is_harp
        )


def look(host: Host, path: str, form: str) -> Copy:
    """Look at one file that bears one of the plugin's names."""
    folder = path.rpartition("/")[0]
    copy = Copy(path=path, form=form, folder=folder, target=host.read_link(path) or "")
    file = host.open_file(path)
    if file is None:
        return _unreadable(host, copy)
    with file:
        try:
            elf = inspect(file, path)
        except HarpError as error:
            return replace(copy, problem=error.message)
    problem = "" if elf.abis else f"{path} is no NCCL network plugin: it exports no ncclNetPlugin_vN."
    return replace(copy, elf=elf, problem=problem)


def _unreadable(host: Host, copy: Copy) -> Copy:
    path = copy.path
    if host.is_dir(path):
        return replace(copy, problem=f"{path} is a directory.")
    if host.is_loop(path):
        return replace(copy, problem=f"The symbolic links of {path} form a loop.", can_be_opened=False)
    if not host.exists(path):
        problem = f"{path} is a link to {copy.target}, which is not there."
        return replace(copy, problem=problem, can_be_opened=False)
    if not host.is_file(path):
        return replace(copy, problem=f"{path} is no regular file.")
    problem = f"{path} cannot be read by this user."
    return replace(copy, problem=problem, can_be_read=False, can_be_opened=False)


def find_copies(host: Host) -> tuple[Copy, ...]:
    """Find whatever bears one of the plugin's names, the installed ones first as they are searched."""
    folders = search_dirs(host)
    found = [(f"{folder}/{NAME}", INSTALLED) for folder in folders]
    parked = ((name, form) for name, form in FORMS.items() if form != INSTALLED)
    found += [(f"{folder}/{name}", form) for name, form in parked for folder in (*folders, *MOVED_DIRS)]
    searched = {host.leads_to(folder) for folder in folders}
    found += [(f"{folder}/{NAME}", MOVED) for folder in MOVED_DIRS if host.leads_to(folder) not in searched]
    return tuple(look(host, path, form) for path, form in found if host.stat(path) is not None)


def find_plugins(host: Host) -> tuple[PluginFile, ...]:
    """Find the plugin under all of its names, as facts."""
    return tuple(copy.fact() for copy in find_copies(host))


def find_libraries(host: Host) -> tuple[Library, ...]:
    """Find the NCCL libraries of the system, CUDA, conda and Python packages, each file once."""
    folders = [*environment_dirs(host), *search_dirs(host)]
    folders += [folder for pattern in LIBRARY_DIRS for folder in host.glob(pattern)]
    packages = [folder for pattern in PYTHON_DIRS for folder in host.glob(pattern)]
    if host.is_real:
        packages += [os.path.realpath(path) for path in sys.path if path.endswith("-packages")]
    folders += [
        folder
        for package in packages
        for part in PYTHON_LIBRARIES
        for folder in host.glob(f"{package}/{part}")
    ]
    files: dict[str, None] = {}
    for folder in folders:
        for name in host.list_dir(folder):
            if name == "libnccl.so" or name.startswith("libnccl.so."):
                files.setdefault(host.leads_to(f"{folder}/{name}") or "")
    return tuple(
        Library(path=path, version=library_version(host, path)) for path in files if host.is_file(path)
    )
