# SPDX-License-Identifier: Apache-2.0
"""The lab's own C sources, compiled when they are first needed and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from harpctl.errors import ExitCode, HarpError

FLAGS = ("-std=gnu11", "-O2", "-D_GNU_SOURCE")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "harp"


def compiled(source: Path, *words: str, without: str) -> Path:
    """Compile a source once for each state of it; `without` says what works where there is no compiler."""
    text = source.read_bytes()
    program = _cache() / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}"
    if program.is_file():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = Path(folder) / source.stem
        try:
            done = subprocess.run(
                ["cc", *FLAGS, *words, "-o", str(made), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise HarpError(
                f"This part of the lab needs a C compiler, for {source.name}.",
                f"Install one with `./harp_setup build` as root; {without}",
                ExitCode.MISSING,
            ) from None
        if done.returncode:
            raise HarpError(f"{source} does not compile: {done.stderr.strip()[:400]}")
        made.replace(program)
    return program
