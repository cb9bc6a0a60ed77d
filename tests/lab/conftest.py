"""Compiles the C programs of the lab tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PLUGIN_DIR, ROOT
from tests.lab.xdp import HOLDER_WORDS

FLAGS = ("-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Give a function that compiles tests/lab/NAME.c."""
    folder = tmp_path_factory.mktemp("lab")

    def build(name: str, *words: str) -> Path:
        out = folder / name
        source = ROOT / "tests" / "lab" / f"{name}.c"
        argv = ["cc", *FLAGS, f"-I{PLUGIN_DIR / 'src'}", "-o", str(out), str(source), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return out

    return build


@pytest.fixture(scope="session")
def wirebox(compile_c: Callable[..., Path]) -> Path:
    """The wire with faults."""
    return compile_c("wirebox")


@pytest.fixture(scope="session")
def xdp_hold(compile_c: Callable[..., Path]) -> Path:
    """What holds an XDP program on an interface."""
    return compile_c("xdp_hold", *HOLDER_WORDS)
