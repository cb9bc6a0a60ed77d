# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs of these tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import native
from tests.conftest import PLUGIN_DIR, ROOT

FLAGS = ("-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-rdynamic")
SANITIZED = ("-shared", "-fPIC", "-fsanitize=address")  # a plugin
# What loads it: it is not instrumented itself, since its malloc runs before the sanitizer's memory is there.
SANITIZER = ("-Wl,-z,dynamic-undefined-weak,--no-as-needed", "-lasan", "-lubsan", "-Wl,--as-needed")

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def plugin(request: pytest.FixtureRequest, plugin_file: Path) -> Path:
    """Provide the plugin; with --asan the one that is built with AddressSanitizer and UBSan."""
    if not request.config.getoption("--asan"):
        return plugin_file
    built = native.run_make(*native.sanitized_words("asan"))
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    return PLUGIN_DIR / "build" / "asan" / "libnccl-net.so"


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Provide a function that compiles tests/faults/NAME.c."""
    folder = tmp_path_factory.mktemp("faults")

    def build(name: str, *words: str) -> Path:
        out, source = folder / name, ROOT / "tests" / "faults" / f"{name}.c"
        argv = [
            "cc",
            *FLAGS,
            *words,
            f"-I{PLUGIN_DIR / 'src'}",
            f"-I{ROOT / 'tests'}",
            "-o",
            str(out),
            str(source),
            "-ldl",
            "-lpthread",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return out

    return build
