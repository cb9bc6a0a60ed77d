# SPDX-License-Identifier: Apache-2.0
"""Finds a library as the loader does that another one names without a folder, as dlopen in NCCL does.

The order is that of ld.so(8) of glibc: the RPATH of the caller and of those that loaded it, unless the caller
has a RUNPATH; LD_LIBRARY_PATH; the caller's RUNPATH; the cache; the folders that are built in. An RPATH
beside a RUNPATH does not count. Not modelled: a library of that name that the process has loaded already,
folders relative to a job's own, and variants for a kind of processor (glibc-hwcaps).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

import msgspec

from harpctl.facts.elf import Dynamic, read_dynamic
from harpctl.facts.library_dirs import TRIPLETS, host_machine, search_dirs, system_dirs
from harpctl.host.host import Host

CACHE = "/etc/ld.so.cache"
MAGIC = b"glibc-ld.so.cache1.1"
HEAD = struct.Struct("=20sIIB3xI12x")  # magic, entries, bytes of texts, flags, extensions
ENTRY = struct.Struct("=iIIIQ")  # flags, offset of the name, of the path, release of the kernel, processor
KINDS = {"x86_64": 0x0303, "aarch64": 0x0A03}  # flags of libraries of glibc for a machine
ENTRIES_MAX = 1 << 20


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A library of a process, or its program."""

    path: str
    dynamic: Dynamic = Dynamic()

    @property
    def name(self) -> str:
        """Return the name by which others need it."""
        return self.dynamic.soname or self.path.rpartition("/")[2]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A path that the loader tries."""

    path: str
    why: str  # "by ..."


def load_object(host: Host, path: str) -> Loaded:
    """Read what the loader goes by; a file that it cannot read says nothing."""
    file = host.open_file(path)
    if file is None:
        return Loaded(path=path)
    with file:
        return Loaded(path=path, dynamic=read_dynamic(file) or Dynamic())


def search_places(host: Host, name: str, chain: Sequence[Loaded], environment: Sequence[str]) -> Iterator[Place]:
    """Yield the paths that the loader tries for a name, in their order.

    The chain is the caller, what loaded it, and so on up to the program. `environment` is LD_LIBRARY_PATH.
    """
    caller = chain[0]
    for one in chain if caller.dynamic.runpath is None else ():
        if one.dynamic.runpath is None:
            for folder in _expand_folders(host, one, one.dynamic.rpath):
                yield Place(path=f"{folder}/{name}", why=f"by the RPATH of {one.path}")
    for folder in environment:
        yield Place(path=f"{folder}/{name}", why="by LD_LIBRARY_PATH")
    for folder in _expand_folders(host, caller, caller.dynamic.runpath):
        yield Place(path=f"{folder}/{name}", why=f"by the RUNPATH of {caller.path}")
    cached = cached_files(host, name)
    for path in cached or ():
        yield Place(path=path, why="by the loader's cache")
    for folder in search_dirs(host) if cached is None else system_dirs(host):
        yield Place(path=f"{folder}/{name}", why="by the loader's own folders")


def _expand_folders(host: Host, owner: Loaded, text: str | None) -> list[str]:
    """Return the absolute folders of an RPATH or RUNPATH."""
    machine = host_machine(host)
    triplet = TRIPLETS.get(machine, f"{machine}-linux-gnu")
    words = {
        "ORIGIN": owner.path.rpartition("/")[0],
        "LIB": f"lib/{triplet}" if host.is_dir(f"/usr/lib/{triplet}") else "lib64",
    }

    def word(match: re.Match[str]) -> str:
        return words.get(match[1] or match[2], match[0])

    folders = (re.sub(r"\$(?:(\w+)|\{(\w+)\})", word, part) for part in (text or "").split(":"))
    return [folder for folder in folders if folder.startswith("/") and "$" not in folder]


def cached_files(host: Host, name: str) -> tuple[str, ...] | None:
    """Return the paths that the loader's cache has for a name; None where there is no cache."""
    data = host.read_bytes(CACHE) or b""
    start = data.find(MAGIC)
    if start < 0 or len(data) < start + HEAD.size:
        return None
    count = min(HEAD.unpack_from(data, start)[1], ENTRIES_MAX)
    entries = data[start + HEAD.size : start + HEAD.size + count * ENTRY.size]

    def text(at: int) -> str:
        return data[start + at : data.find(b"\0", start + at)].decode("utf-8", "surrogateescape")

    kind = KINDS.get(host_machine(host))
    whole = len(entries) - len(entries) % ENTRY.size
    return tuple(
        text(path)
        for flags, key, path, _release, processor in ENTRY.iter_unpack(entries[:whole])
        if flags == kind and not processor and text(key) == name
    )
