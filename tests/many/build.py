# SPDX-License-Identifier: Apache-2.0
"""Compiles the C programs of this folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import PLUGIN_DIR, ROOT

FLAGS = ("-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")


def compile_program(source: str, out: Path, *words: str) -> Path:
    """Compile a program or library of this folder."""
    paths = (f"-I{PLUGIN_DIR / 'src'}", f"-I{ROOT / 'tests'}", str(ROOT / "tests" / "many" / source))
    argv = ["cc", *FLAGS, *words, "-o", str(out), *paths, "-ldl", "-lpthread"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out
