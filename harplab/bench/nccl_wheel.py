# SPDX-License-Identifier: Apache-2.0
"""The official NCCL libraries: fetched from PyPI when they are first requested, and kept in the user's cache.

A wheel is 150 to 350 MB. What is fetched is written under another name and renamed, so that two processes may
do it at once.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError
from harplab.perf.baseline import cache_dir, compile_shim

NEWEST = "2.32.3"
MEMBER = "nvidia/nccl/lib/libnccl.so.2"
FETCH_TIMEOUT_S = 1800
VERSION = re.compile(r"^\d+\.\d+\.\d+$")
CU12_SINCE = (2, 16)  # older ones are in the wheel for CUDA 11
# Of NCCL's own sockets, the best of which is a side's figure.
BEST_OF: tuple[dict[str, str], ...] = (
    {},
    *(
        {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(sockets)}
        for threads, sockets in ((1, 1), (2, 1), (2, 2), (4, 4))
    ),
)


@dataclasses.dataclass(frozen=True)
class Wheel:
    """One release: its number, and the package that brings it."""

    version: str
    package: str

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


def wheel_of(version: str) -> Wheel:
    """Return the wheel that brings a release."""
    if not VERSION.match(version):
        raise HarpError(f"{version!r} is not a release of NCCL.", f"Write {NEWEST}.", ExitCode.USAGE)
    if version == NEWEST:
        return Wheel(version, "nvidia-nccl-cu13")
    number = tuple(map(int, version.split(".")[:2]))
    return Wheel(version, "nvidia-nccl-cu12" if number >= CU12_SINCE else "nvidia-nccl-cu11")


def run_pip(argv: Sequence[str]) -> None:
    """Run pip. Raises HarpError with its last line."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
    if done.returncode:
        error = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise HarpError(
            f"pip can't fetch {argv[-1]}: {error}",
            "It is fetched once from PyPI; pip's own settings (PIP_INDEX_URL, a proxy) are followed.",
            ExitCode.MISSING,
        )


def fetch_nccl(wheel: Wheel, cache: Path, run: Callable[[Sequence[str]], None] = run_pip) -> Path:
    """Return the path of a release's libnccl.so.2 in the cache; download its wheel the first time."""
    library = cache / f"nccl-{wheel.version}" / "libnccl.so.2"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        run([*pip, "--dest", folder, str(wheel)])
        files = list(Path(folder).glob("*.whl"))
        if len(files) != 1:
            raise HarpError(f"pip fetched {len(files)} wheels of {wheel} where one was expected.")
        part = Path(folder) / "libnccl.so.2"
        with zipfile.ZipFile(files[0]) as opened, opened.open(MEMBER) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target)
        part.rename(library)
    return library


def socket_baseline() -> tuple[Path, dict[str, str]]:
    """Return the baseline plugin and its environment, fetching and compiling what is not there."""
    cache = cache_dir()
    return compile_shim(cache), {"NCCL_LIB": str(fetch_nccl(wheel_of(NEWEST), cache))}
