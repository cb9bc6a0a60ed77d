# SPDX-License-Identifier: Apache-2.0
"""The plugin that each NCCL of a host takes by the search path of the process that it is in.

PyTorch loads the libnccl.so.2, or the librccl.so.1, that the search path of its own libraries leads to; its
search path has their RPATHs in it. Of another libnccl.so nothing is known but its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from harpctl.facts.library_dirs import environment_dirs
from harpctl.facts.loader import Loaded, Place, load_object, search_places
from harpctl.facts.model import Library
from harpctl.facts.plugin_files import (
    INSTALLED,
    Copy,
    inspect_copy,
    library_files,
    library_version,
    package_dirs,
    packaged_copies,
)
from harpctl.host.host import Host
from harpctl.plugin.choice import (
    NCCL,
    NEWEST,
    RCCL,
    Family,
    candidate_files,
    deciding_setting,
    family_of,
    is_loadable_harp,
    loaded_copy,
)
from harpctl.plugin.compat import Platform
from harpctl.plugin.settings import SetVariable

LOADED = ("libnccl.so.2", "librccl.so.1")  # by PyTorch
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
        who = f"{self.family.word} {self.library.version}".strip() + f" ({self.library.path}{by})"
        if self.copy is None:
            return f"{who} takes no plugin"
        return f"{who} takes {self.copy.path}, which is {self.copy.what}, {self.why}".rstrip(", ")

    @property
    def family(self) -> Family:
        """Return by which names it looks for a plugin."""
        return RCCL if self.library.is_rccl else NCCL


class TakenByJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin that jobs started here load, and why."""

    family: Family  # the jobs' library: RCCL where no NCCL is here
    taken: tuple[Taken, ...]  # by each NCCL and RCCL that is here
    copy: Copy | None  # by them all, or where they differ or none is here, by one that has no search path
    why: str = ""  # "by ..."; "" for the loader's folders and for a path
    packaged: Copy | None = None  # HARP in a Python environment from which nothing leads to it

    def is_led_to_harp(self, platform: Platform) -> bool:
        """Return whether all take a HARP that this host can load."""
        return all(is_loadable_harp(copy, platform) for copy in (self.copy, *(one.copy for one in self.taken)))


def look_for_plugins(
    host: Host,
    copies: Sequence[Copy],
    settings: Sequence[SetVariable],
    platform: Platform,
    taken: tuple[Taken, ...],
) -> TakenByJobs:
    """Find out what jobs from here take, of which `taken` is what find_taken has returned."""
    family = family_of([one.library for one in taken])
    copy, why = _taken_unseen(host, copies, settings, platform, family)
    if is_loadable_harp(copy, platform):
        return TakenByJobs(family=family, taken=taken, copy=copy, why=why)
    if taken and all(is_loadable_harp(one.copy, platform) for one in taken):
        return TakenByJobs(family=family, taken=taken, copy=taken[0].copy, why=taken[0].why)
    packaged = next((one for one in packaged_copies(host) if is_loadable_harp(one, platform)), None)
    return TakenByJobs(family=family, taken=taken, copy=copy, why=why, packaged=packaged)


def _taken_unseen(
    host: Host, copies: Sequence[Copy], settings: Iterable[SetVariable], platform: Platform, family: Family
) -> tuple[Copy | None, str]:
    """Return what the newest release takes that has no search path of its own, and why."""
    decides = deciding_setting(settings, family)
    known = {copy.path: copy for copy in copies}
    for file in candidate_files(decides.value if decides else None, family=family):
        for folder in environment_dirs(host) if "/" not in file else ():
            place = Place(path=f"{folder}/{file}", why="by LD_LIBRARY_PATH")
            copy = _find_copy(host, place, file, known)
            if copy is not None and copy.is_seen_by(platform.machine):
                return copy, place.why
        if copy := loaded_copy(copies, [file], platform):
            return copy, ""
    return None, ""


def find_taken(
    host: Host, copies: Sequence[Copy], settings: Iterable[SetVariable], platform: Platform
) -> tuple[Taken, ...]:
    """Return what each NCCL of the host takes, under the setting that holds for every job."""
    settings = tuple(settings)
    known = {copy.path: copy for copy in copies}

    def take(chain: Sequence[Loaded]) -> Taken:
        library = Library(path=chain[0].path, version=library_version(host, chain[0].path))
        taken = Taken(library=library, loader=chain[1].path if len(chain) > 1 else "")
        decides = deciding_setting(settings, taken.family)
        value = decides.value if decides else None
        for file in candidate_files(value, library.version or NEWEST, taken.family):
            if "/" in file:
                if copy := loaded_copy(copies, [file], platform):
                    return msgspec.structs.replace(taken, copy=copy)
                continue
            for place in search_places(host, file, chain, environment_dirs(host)):
                copy = _find_copy(host, place, file, known)
                if copy is not None and copy.is_seen_by(platform.machine):
                    return msgspec.structs.replace(taken, copy=copy, why=place.why)
        return taken

    return tuple(dict.fromkeys(take(chain) for chain in find_chains(host)))


def _find_copy(host: Host, place: Place, name: str, known: dict[str, Copy]) -> Copy | None:
    folder = host.leads_to(place.path.rpartition("/")[0])
    path = f"{folder}/{name}"
    if path not in known and folder and host.stat(path) is not None:
        known[path] = inspect_copy(host, path, INSTALLED, name)
    return known.get(path)


def find_chains(host: Host) -> list[tuple[Loaded, ...]]:
    """Return each NCCL with what loads it, up to the program."""
    found = []
    for package in package_dirs(host):
        for name in LOADED:
            loaders = _find_loaders(host, package, name)
            if loaders and (path := _first_file(host, search_places(host, name, loaders, environment_dirs(host)))):
                found.append((load_object(host, path), *loaders))
    loaded = {chain[0].path for chain in found}
    alone = (path for path in library_files(host) if path not in loaded)
    return [*found, *((load_object(host, path),) for path in alone)]


def _first_file(host: Host, tried: Iterable[Place]) -> str:
    paths = (host.leads_to(place.path) for place in tried if host.is_file(place.path))
    return next(filter(None, paths), "")


def _find_loaders(host: Host, package: str, wanted: str) -> tuple[Loaded, ...]:
    """Return PyTorch's library that needs a library, the one that needs that, and so on, and the program."""
    names = [name for name in host.list_dir(f"{package}/torch/lib") if ".so" in name]
    files = [load_object(host, f"{package}/torch/lib/{name}") for name in names]
    files += [load_object(host, path) for path in host.glob(f"{package}/torch/_C*.so")]
    chain: list[Loaded] = []
    while by := next((one for one in files if wanted in one.dynamic.needed and one not in chain), None):
        chain.append(by)
        wanted = by.name
    return (*chain, *_find_program(host, package)) if chain else ()


def _find_program(host: Host, package: str) -> list[Loaded]:
    """Return the Python that uses a folder of packages."""
    match = PACKAGES.fullmatch(package)
    if match is None:
        return []
    paths = (f"{prefix}/bin/{match['python']}" for prefix in (match["prefix"], "/usr"))
    return [load_object(host, host.leads_to(path) or path) for path in paths if host.is_file(path)][:1]
