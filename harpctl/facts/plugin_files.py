# SPDX-License-Identifier: Apache-2.0
"""The plugin and NCCL's libraries on a host: their names, and where to look for them.

A plugin is off when its file is not found under its name. Operators use five ways to do that, and all
are found here: a prefix, a suffix, moved to /mnt or /root, and a name misspelt when it was turned on again.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from harpctl.errors import HarpError
from harpctl.facts.elf import Elf, find_constant, inspect_elf
from harpctl.facts.library_dirs import environment_dirs, search_dirs
from harpctl.facts.model import Library, PluginFile
from harpctl.host.host import Host

NAME = "libnccl-net.so"
SUFFIX = "harp"  # the value of NCCL_NET_PLUGIN that leads to the second name
SUFFIXED = f"libnccl-net-{SUFFIX}.so"  # beside another plugin that has the plain name
RCCL_NAME = "librccl-net.so"  # the same two for RCCL, AMD's NCCL
RCCL_SUFFIXED = f"librccl-net-{SUFFIX}.so"
OWN_NAMES = (NAME, SUFFIXED, RCCL_NAME, RCCL_SUFFIXED)
PARKED = f"bak.{NAME}"  # the form that `harpctl disable` uses: ldconfig looks at lib* alone
INSTALLED = "installed"
FORMS = {NAME: INSTALLED, PARKED: "bak.", f"{NAME}_bak": "_bak", "libncc-net.so": "typo"}
MOVED = "moved"
MOVED_DIRS = ("/mnt", "/root")
ENVS = ("", "/envs/*")
CONDA = tuple(f"{home}/*conda*{env}" for home in ("/opt", "/root", "/home/*") for env in ENVS)
PYTHON_DIRS = (
    *(f"/usr{local}/lib{bits}/python3*/*-packages" for local in ("", "/local") for bits in ("", "64")),
    *(f"/opt/*{env}/lib/python3*/site-packages" for env in ENVS),
    *(f"{home}/.local/lib/python3*/site-packages" for home in ("/root", "/home/*")),
    *(f"{conda}/lib/python3*/site-packages" for conda in CONDA[2:]),
)
NCCL_PACKAGE = "nvidia/nccl/lib"  # the folder of PyPI's wheels of NCCL, and of our own
PYTHON_LIBRARIES = (NCCL_PACKAGE, "nvidia/nccl*/lib", "torch/lib", "_rocm_sdk_libraries*/lib")
LIBRARY_DIRS = (
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/local/nccl*/lib",
    "/opt/nccl*/lib",
    "/opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/nccl/lib",
    "/opt/rocm*/lib",
    *(f"{conda}/lib" for conda in CONDA),
)
NCCL_VERSION = re.compile(rb"[NR]CCL version (\d+\.\d+\.\d+)")  # the line that it logs first
LIBRARY = re.compile(r"lib[nr]ccl\.so(\..*)?")
NCCL_FILE_NAME = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)")


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """Whatever lies under one of the plugin's names."""

    path: str
    form: str  # as PluginFile's
    folder: str
    name: str = NAME  # the file's name where it is on
    aliases: tuple[str, ...] = ()  # paths by which settings name it where it is on
    is_searched: bool = True  # the loader looks into its folder
    target: str = ""  # where a link leads
    elf: Elf | None = None
    problem: str = ""  # why it cannot be loaded, a sentence; "" when it can
    can_be_read: bool = True
    can_be_opened: bool = True  # by the loader; it passes by what it cannot open

    @property
    def is_harp(self) -> bool:
        """Return whether it is HARP's plugin."""
        return self.elf is not None and self.elf.is_harp

    def is_seen_by(self, machine: str) -> bool:
        """Return whether the loader of a machine stops here; it passes by what is for another one."""
        return self.can_be_opened and (self.elf is None or machine in {"", self.elf.machine})

    @property
    def installs_as(self) -> str:
        """Return the path that it has where it is on."""
        return f"{self.folder}/{self.name}"

    @property
    def what(self) -> str:
        """Return what it is: "HARP", "the plugin AWS Libfabric", "no plugin"."""
        if not self.can_be_read:
            return "unreadable"
        if self.elf is None or not self.elf.abis:
            return "no plugin"
        if self.elf.is_harp:
            return f"HARP {self.elf.version}".strip()
        return f"the plugin {self.elf.name}" if self.elf.name else "an unnamed plugin"

    def fact(self) -> PluginFile:
        """Return it as a fact of the host."""
        version = self.elf.version if self.elf else ""
        return PluginFile(
            path=self.path, form=self.form, target=self.target, version=version, is_harp=self.is_harp
        )


def inspect_copy(host: Host, path: str, form: str, name: str = NAME, *, is_searched: bool = True) -> Copy:
    """Look at one file that bears one of the plugin's names."""
    folder, target = path.rpartition("/")[0], host.read_link(path) or ""
    copy = Copy(path=path, form=form, folder=folder, name=name, is_searched=is_searched, target=target)
    file = host.open_file(path)
    if file is None:
        return _explain_unreadable(host, copy)
    with file:
        try:
            elf = inspect_elf(file, path)
        except HarpError as error:
            return replace(copy, problem=error.message)
    problem = "" if elf.abis else f"{path} is no NCCL network plugin: it exports no ncclNetPlugin_vN."
    return replace(copy, elf=elf, problem=problem)


def _explain_unreadable(host: Host, copy: Copy) -> Copy:
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


def parked_as(name: str) -> str:
    """Return what `harpctl disable` renames a file to."""
    return f"bak.{name}"


def _forms_of(name: str) -> dict[str, str]:
    return FORMS if name == NAME else {name: INSTALLED, parked_as(name): "bak.", f"{name}_bak": "_bak"}


def find_copies(host: Host, also: Iterable[str] = ()) -> tuple[Copy, ...]:
    """Find whatever bears one of the plugin's names, the installed ones first as they are searched.

    `also` are other names and paths, those that settings make NCCL look for.
    """
    folders = search_dirs(host)
    searched = {host.leads_to(folder) for folder in folders}
    names = dict.fromkeys((*OWN_NAMES, *(name for name in also if "/" not in name)))
    moved = [folder for folder in MOVED_DIRS if host.leads_to(folder) not in searched]
    aliases: dict[str, str] = {}
    wanted = [(folder, name, name, INSTALLED) for name in names for folder in folders]
    for path in also:
        given, _slash, name = path.rpartition("/")
        if given.startswith("/") and name:
            folder = host.leads_to(given) or given
            aliases[f"{folder}/{name}"] = path
            wanted += [(folder, file, name, form) for file, form in _forms_of(name).items()]
    for name in names:
        parked = [(file, form) for file, form in _forms_of(name).items() if form != INSTALLED]
        wanted += [(folder, file, name, form) for file, form in parked for folder in (*folders, *moved)]
        wanted += [(folder, name, name, MOVED) for folder in moved]
    found: dict[str, Copy] = {}
    for folder, file, name, form in wanted:
        path = f"{folder}/{file}"
        if path not in found and host.stat(path) is not None:
            copy = inspect_copy(host, path, form, name, is_searched=folder in folders)
            alias = aliases.get(copy.installs_as)
            found[path] = replace(copy, aliases=(alias,)) if alias else copy
    return tuple(sorted(found.values(), key=lambda copy: copy.form != INSTALLED))


def find_plugins(host: Host) -> tuple[PluginFile, ...]:
    """Find the plugin under all of its own names, as facts."""
    return tuple(copy.fact() for copy in find_copies(host))


def own_package_dirs(host: Host) -> tuple[str, ...]:
    """Return the folders of Python packages that jobs from here use: the shell's environment, then ours."""
    if not host.is_real:
        return ()
    prefixes = (os.environ.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    packages = [path for prefix in prefixes if prefix for path in host.glob(f"{prefix}/lib/python3*/*-packages")]
    packages += [path for path in sys.path if path.endswith("-packages")]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in packages))


def package_dirs(host: Host) -> tuple[str, ...]:
    """Return the folders of Python packages, those that jobs from here use first."""
    packages = [folder for pattern in PYTHON_DIRS for folder in host.glob(pattern)]
    return tuple(dict.fromkeys((*own_package_dirs(host), *packages)))


def packaged_copies(host: Host) -> tuple[Copy, ...]:
    """Find the plugin of the wheel harp_net in the Python environments of jobs from here, or of a tree."""
    folders = (f"{folder}/{NCCL_PACKAGE}" for folder in own_package_dirs(host) or package_dirs(host))
    paths = (f"{folder}/{SUFFIXED}" for folder in folders)
    there = (path for path in paths if host.stat(path) is not None)
    return tuple(inspect_copy(host, path, INSTALLED, SUFFIXED, is_searched=False) for path in there)


def library_files(host: Host) -> tuple[str, ...]:
    """Find the files of NCCL and RCCL: of the system, CUDA, ROCm, conda and Python packages, each once."""
    folders = [*environment_dirs(host), *search_dirs(host)]
    folders += [folder for pattern in LIBRARY_DIRS for folder in host.glob(pattern)]
    folders += [
        folder
        for package in package_dirs(host)
        for part in PYTHON_LIBRARIES
        for folder in host.glob(f"{package}/{part}")
    ]
    files: dict[str, None] = {}
    for folder in folders:
        for name in host.list_dir(folder):
            if LIBRARY.fullmatch(name):
                files.setdefault(host.leads_to(f"{folder}/{name}") or "")
    return tuple(filter(host.is_file, files))


def find_libraries(host: Host) -> tuple[Library, ...]:
    """Find the NCCL and RCCL libraries, with their releases."""
    return tuple(Library(path=path, version=library_version(host, path)) for path in library_files(host))


def library_version(host: Host, path: str) -> str:
    """Return a library's release, from its text "NCCL version", else from libnccl's name; else ""."""
    version = ""
    if file := host.open_file(path):
        with file:
            version = find_constant(file, NCCL_VERSION)
    match = NCCL_FILE_NAME.fullmatch(path.rpartition("/")[2])
    return version or (match[1] if match else "")
