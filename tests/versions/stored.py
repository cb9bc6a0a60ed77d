# SPDX-License-Identifier: Apache-2.0
"""The plugin of each release, as `./harp_setup build --portable` made it, compressed, in the folder stored/.

A file's name has version, commit and machine: libnccl-net-VERSION[-COMMITS-gHASH].MACHINE.so.xz.
"""

from __future__ import annotations

import lzma
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from harpctl.facts.elf import Elf, inspect_elf

FOLDER = Path(__file__).with_name("stored")
NAME = re.compile(r"libnccl-net-(?P<version>[0-9].*)\.(?P<machine>\w+)\.so\.xz")
FILTERS = (
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0},
)


@dataclass(frozen=True)
class Stored:
    """A library of a release."""

    file: Path
    version: str

    def unpack(self, folder: Path) -> Path:
        """Write the library; return its path."""
        library = folder / self.file.name.removesuffix(".xz")
        library.write_bytes(lzma.decompress(self.file.read_bytes()))
        return library


def release_of(version: str) -> str:
    """Return the release that a version is of: 1.0.0 of 1.0.0-12-gabc1234."""
    return version.partition("-")[0]


def list_stored(folder: Path = FOLDER) -> list[Stored]:
    """List the libraries for this machine."""
    found = [(file, NAME.fullmatch(file.name)) for file in sorted(folder.glob("*"))]
    return [
        Stored(file, match["version"]) for file, match in found if match and match["machine"] == platform.machine()
    ]


def facts_of(library: Path) -> Elf:
    """Read which version a library is, and which wire versions it speaks."""
    with library.open("rb") as file:
        return inspect_elf(file, str(library))


def store_library(library: Path, folder: Path = FOLDER) -> Path:
    """Store a library in place of others of its release; return the file.

    Raises ValueError where nobody could build the same again.
    """
    version = facts_of(library).version
    if not re.fullmatch(r"[0-9.]+(-[0-9]+-g[0-9a-f]+)?", version):
        raise ValueError(f"{library} has version {version}: commit everything, and build it again")
    for older in list_stored(folder):
        if release_of(older.version) == release_of(version):
            older.file.unlink()
    file = folder / f"libnccl-net-{version}.{platform.machine()}.so.xz"
    folder.mkdir(exist_ok=True)
    filters = FILTERS if platform.machine() == "x86_64" else FILTERS[1:]
    file.write_bytes(lzma.compress(library.read_bytes(), filters=filters))
    return file
