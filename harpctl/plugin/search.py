# SPDX-License-Identifier: Apache-2.0
"""Which plugin each NCCL of a host takes by the search path of the process that it is in.

PyTorch loads the libnccl.so.2 that the search path of its own libraries leads to; NCCL's search path has
their RPATHs in it. Of another libnccl.so nothing is known but its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from harpctl.facts.library_dirs import environment_dirs
from harpctl.facts.loader import Loaded, Place, load, places
from harpctl.facts.model import Library
from harpctl.facts.plugin_files import (
    INSTALLED,
    Copy,
    find_libraries,
    inspect_copy,
    library_version,
    package_dirs,
)
from harpctl.host.host import Host
from harpctl.plugin.choice import NEWEST, candidate_files, deciding_setting, loaded_copy
from harpctl.plugin.compat import Platform
from harpctl.plugin.settings import SetVariable

NCCL = "libnccl.so.2"
PACKAGES = re.compile(r"(?P<prefix>.*)/lib(?:64)?/(?P<python>python3[^/]*)/[^/]+-packages")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An NCCL, and the plugin that it takes."""

    library: Library
    loader: str = ""  # the library that loads this NCCL; "" where that is not known
    copy: Copy | None = None
    why: str = ""  # "by ..."; "" where a setting names the file's path

    def __str__(self) -> str:
        """Return it as a sentence without its end."""
        by = f", loaded by {self.loader}" if self.loader else ""
        who = f"NCCL {self.library.version}".strip() + f" ({self.library.path}{by})"
        if self.copy is None:
            return f"{who} takes no plugin"
        return f"{who} takes {self.copy.path}, which is {self.copy.what}, {self.why}".rstrip(", ")


def find_taken(
    host: Host, copies: Sequence[Copy], settings: Iterable[SetVariable], platform: Platform
) -> tuple[Taken, ...]:
    """Return what each NCCL of the host takes, under the setting that holds for every job."""
    decides = deciding_setting(settings)
    value = decides.value if decides else None
    known = {copy.path: copy for copy in copies}

    def take(chain: Sequence[Loaded]) -> Taken:
        library = Library(path=chain[0].path, version=library_version(host, chain[0].path))
        taken = Taken(library=library, loader=chain[1].path if len(chain) > 1 else "")
        for file in candidate_files(value, library.version or NEWEST):
            if "/" in file:
                if copy := loaded_copy(copies, [file], platform):
                    return msgspec.structs.replace(taken, copy=copy)
                continue
            for place in places(host, file, chain, environment_dirs(host)):
                copy = _copy(host, place, file, known)
                if copy is not None and copy.is_seen_by(platform.machine):
                    return msgspec.structs.replace(taken, copy=copy, why=place.why)
        return taken

    return tuple(dict.fromkeys(take(chain) for chain in chains(host)))


def _copy(host: Host, place: Place, name: str, known: dict[str, Copy]) -> Copy | None:
    folder = host.leads_to(place.path.rpartition("/")[0])
    path = f"{folder}/{name}"
    if path not in known and folder and host.stat(path) is not None:
        known[path] = inspect_copy(host, path, INSTALLED, name)
    return known.get(path)


def chains(host: Host) -> list[tuple[Loaded, ...]]:
    """Return each NCCL with what loads it, up to the program."""
    found = []
    for package in package_dirs(host):
        loaders = _loaders(host, package)
        if loaders and (path := _first(host, places(host, NCCL, loaders, environment_dirs(host)))):
            found.append((load(host, path), *loaders))
    loaded = {chain[0].path for chain in found}
    alone = (library.path for library in find_libraries(host) if library.path not in loaded)
    return [*found, *((load(host, path),) for path in alone)]


def _first(host: Host, tried: Iterable[Place]) -> str:
    paths = (host.leads_to(place.path) for place in tried if host.is_file(place.path))
    return next(filter(None, paths), "")


def _loaders(host: Host, package: str) -> tuple[Loaded, ...]:
    """Return PyTorch's library that needs NCCL, the one that needs that, and so on, and the program."""
    names = [name for name in host.list_dir(f"{package}/torch/lib") if ".so" in name]
    files = [load(host, f"{package}/torch/lib/{name}") for name in names]
    files += [load(host, path) for path in host.glob(f"{package}/torch/_C*.so")]
    chain: list[Loaded] = []
    wanted = NCCL
    while by := next((one for one in files if wanted in one.dynamic.needed and one not in chain), None):
        chain.append(by)
        wanted = by.name
    return (*chain, *_program(host, package)) if chain else ()


def _program(host: Host, package: str) -> list[Loaded]:
    """Return the Python that uses a folder of packages."""
    match = PACKAGES.fullmatch(package)
    if match is None:
        return []
    paths = (f"{prefix}/bin/{match['python']}" for prefix in (match["prefix"], "/usr"))
    return [load(host, host.leads_to(path) or path) for path in paths if host.is_file(path)][:1]
