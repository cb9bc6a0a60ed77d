# SPDX-License-Identifier: Apache-2.0
"""Compiles the program of a rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import PLUGIN_DIR, ROOT

FLAGS = ("-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-rdynamic")


@pytest.fixture(scope="session")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled tests/many/rank.c."""
    out, source = tmp_path_factory.mktemp("many") / "rank", ROOT / "tests" / "many" / "rank.c"
    argv = ["cc", *FLAGS, f"-I{PLUGIN_DIR / 'src'}", "-o", str(out), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out
