"""The official NCCL libraries that the tests drive: at least one for each version of the plugin's table."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from shutil import copyfileobj

from harpctl.bench import baseline
from harpctl.errors import ExitCode, HarpError


@dataclasses.dataclass(frozen=True)
class Release:
    """One release: its number, the wheel that brings it, and the newest plugin table that it knows."""

    version: str
    wheel: str
    table: int

    def __str__(self) -> str:
        return self.version


NEWEST = Release(baseline.NCCL_VERSION, baseline.NCCL_WHEEL, 12)
RELEASES = (
    Release("2.13.4", "nvidia-nccl-cu11", 6),
    Release("2.18.3", "nvidia-nccl-cu12", 6),
    Release("2.19.3", "nvidia-nccl-cu12", 7),
    Release("2.21.5", "nvidia-nccl-cu12", 8),
    Release("2.22.3", "nvidia-nccl-cu12", 8),
    Release("2.25.1", "nvidia-nccl-cu12", 9),
    Release("2.27.7", "nvidia-nccl-cu12", 10),
    Release("2.29.7", "nvidia-nccl-cu12", 11),
    Release("2.30.7", "nvidia-nccl-cu12", 12),
    NEWEST,
)


def fetch(release: Release, cache: Path) -> Path:
    """Give the path of a release's libnccl.so.2 in the cache, downloading its wheel the first time."""
    if release == NEWEST:
        return baseline.fetch_nccl(cache)
    library = cache / f"nccl-{release.version}" / "libnccl.so.2"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        wheel = _download(release, Path(folder))
        part = Path(folder) / "libnccl.so.2"
        with (
            zipfile.ZipFile(wheel) as opened,
            opened.open(baseline.NCCL_MEMBER) as source,
            part.open("wb") as target,
        ):
            copyfileobj(source, target)
        part.rename(library)
    return library


def _download(release: Release, folder: Path) -> Path:
    wanted = f"{release.wheel}=={release.version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*pip, "--dest", str(folder), wanted],
        capture_output=True,
        text=True,
        check=False,
        timeout=baseline.FETCH_TIMEOUT_S,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise HarpError(f"pip can't fetch {wanted}: {said}", exit_code=ExitCode.MISSING)
    return wheels[0]
