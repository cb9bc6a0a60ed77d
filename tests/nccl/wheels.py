# SPDX-License-Identifier: Apache-2.0
"""The official NCCL libraries that the tests drive: at least one for each version of the plugin's table."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copyfileobj

from harplab.bench import nccl_wheel


@dataclasses.dataclass(frozen=True)
class Release:
    """One release: its number, and the newest plugin table that it knows."""

    version: str
    table: int

    def __str__(self) -> str:
        return self.version


# No wheel of NVIDIA's is that old. This one carries the library as NVIDIA built it; its Python is not used.
OLDEST = Release("2.8.4", 4)
OLDEST_WHEEL = "cupy-cuda112==8.6.0"
OLDEST_MEMBER = "cupy/.data/lib/libnccl.so.2"
OLDEST_BUILD = ("--python-version=3.8", "--implementation=cp", "--platform=manylinux1_x86_64")
NEWEST = Release(nccl_wheel.NEWEST, 12)
RELEASES = (
    Release("2.13.4", 6),
    Release("2.18.3", 6),
    Release("2.19.3", 7),
    Release("2.21.5", 8),
    Release("2.22.3", 8),
    Release("2.25.1", 9),
    Release("2.27.7", 10),
    Release("2.29.7", 11),
    Release("2.30.7", 12),
    NEWEST,
)


def fetch_oldest(cache: Path, run: Callable[[Sequence[str]], None] = nccl_wheel.run_pip) -> Path:
    """Return the oldest release's library in the cache, downloading its wheel the first time."""
    library = cache / f"nccl-{OLDEST.version}" / "libnccl.so.2"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        run([*pip, *OLDEST_BUILD, "--dest", folder, OLDEST_WHEEL])
        (wheel,) = Path(folder).glob("*.whl")
        part = Path(folder) / library.name
        with (
            zipfile.ZipFile(wheel) as opened,
            opened.open(OLDEST_MEMBER) as source,
            part.open("wb") as target,
        ):
            copyfileobj(source, target)
        part.rename(library)
    return library
