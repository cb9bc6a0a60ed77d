"""The peer to be measured against: NCCL's own Socket transport as a net plugin.

Fetched only when asked for: the wheel is 300 MB. It goes to the user's cache with the compiled shim, each
written under another name and renamed, so that two processes may do it at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError

NCCL_WHEEL = "nvidia-nccl-cu13"
NCCL_VERSION = "2.32.3"
NCCL_MEMBER = "nvidia/nccl/lib/libnccl.so.2"
SHIM_SOURCE = Path(__file__).resolve().parents[2] / "tests" / "lab" / "nccl_socket_baseline.c"
FETCH_TIMEOUT_S = 1800
BEST_OF: tuple[dict[str, str], ...] = (
    {},
    *(
        {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(sockets)}
        for threads, sockets in ((1, 1), (2, 1), (2, 2), (4, 4))
    ),
)


def cache_dir() -> Path:
    """Name the folder for fetched files; XDG_CACHE_HOME moves it."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(home) / "harp"


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
    except FileNotFoundError:
        raise HarpError(
            f"Making the baseline needs the program {argv[0]!r}.", "Install it.", ExitCode.MISSING
        ) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise HarpError(f"`{' '.join(argv)}` failed.", "\n  ".join(said), ExitCode.MISSING)


def fetch_nccl(cache: Path, run: Callable[[Sequence[str]], None] = _run) -> Path:
    """Give the path of the official libnccl.so.2, downloading its wheel the first time."""
    library = cache / f"nccl-{NCCL_VERSION}" / "libnccl.so.2"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        run([*pip, f"{NCCL_WHEEL}=={NCCL_VERSION}"])
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise HarpError(f"pip fetched {len(wheels)} wheels of {NCCL_WHEEL} where one was expected.")
        part = Path(folder) / "libnccl.so.2"
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            wheel.open(NCCL_MEMBER) as source,
            part.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        part.rename(library)
    return library


def compile_shim(
    cache: Path, run: Callable[[Sequence[str]], None] = _run, source: Path = SHIM_SOURCE
) -> Path:
    """Compile the shim that shows NCCL's transport as a plugin; again only when its source has changed."""
    try:
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    except OSError:
        raise HarpError(
            f"The baseline's source {source} is missing.",
            "`--against socket` works from a checkout of HARP.",
            ExitCode.MISSING,
        ) from None
    shim = cache / f"libnccl-net-baseline-{digest}.so"
    if not shim.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = shim.with_suffix(f".{os.getpid()}")
        compiler = os.environ.get("CC", "cc").split()
        run([*compiler, "-O2", "-fPIC", "-shared", "-o", str(part), str(source), "-ldl"])
        part.rename(shim)
    return shim


def socket_baseline() -> tuple[Path, dict[str, str]]:
    """Give the baseline plugin and its environment, fetching and compiling what is not there."""
    cache = cache_dir()
    return compile_shim(cache), {"NCCL_LIB": str(fetch_nccl(cache))}
