# SPDX-License-Identifier: Apache-2.0
"""The peer to be measured against: NCCL's own Socket transport as a net plugin.

The shim is compiled into the user's cache, under another
name, and renamed, so that two processes may do it at once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError

SHIM_SOURCE = Path(__file__).resolve().parents[2] / "tests" / "lab" / "nccl_socket_baseline.c"
COMPILE_TIMEOUT_S = 600


def cache_dir() -> Path:
    """Return the folder for fetched files; XDG_CACHE_HOME moves it."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(home) / "harp"


def _run_compiler(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S)
    except FileNotFoundError:
        raise HarpError(
            f"Making the baseline needs the program {argv[0]!r}.", "Install it.", ExitCode.MISSING
        ) from None
    if done.returncode:
        errors = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise HarpError(f"`{' '.join(argv)}` failed.", "\n  ".join(errors), ExitCode.MISSING)


def compile_shim(
    cache: Path, run: Callable[[Sequence[str]], None] = _run_compiler, source: Path = SHIM_SOURCE
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
