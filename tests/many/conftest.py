# SPDX-License-Identifier: Apache-2.0
"""Compiles the program of a rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import PLUGIN_DIR, ROOT

FLAGS = ("-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")


def _compile(source: str, out: Path, *words: str) -> Path:
    """Compile a program or library of this folder."""
    paths = (f"-I{PLUGIN_DIR / 'src'}", f"-I{ROOT / 'tests'}", str(ROOT / "tests" / "many" / source))
    argv = ["cc", *FLAGS, *words, "-o", str(out), *paths, "-ldl", "-lpthread"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled tests/many/rank.c."""
    return _compile("rank.c", tmp_path_factory.mktemp("many") / "rank", "-rdynamic")


@pytest.fixture(scope="session")
def defect_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled tests/many/defect.c."""
    return _compile("defect.c", tmp_path_factory.mktemp("many") / "defect.so", "-shared", "-fPIC")
