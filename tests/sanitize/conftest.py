# SPDX-License-Identifier: Apache-2.0
"""Builds the plugin and harp-perf with each sanitizer that runs here; what a report of one looks like."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import native
from tests.conftest import SANITIZERS
from tests.lab.conftest import compile_c, xdp_hold

__all__ = ["MAY_BUILD", "OPTIONS", "REPORT", "compile_c", "xdp_hold"]
MAY_BUILD = pytest.mark.timeout(native.BUILD_TIMEOUT_S + native.RUN_TIMEOUT_S)
OPTIONS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=1:exitcode=66", "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "exitcode=66:halt_on_error=0"},
}
FLAG = {"asan": "address,undefined", "tsan": "thread"}
REPORT = re.compile(r"(ERROR|WARNING|SUMMARY): \w+Sanitizer|runtime error:|assertion", re.IGNORECASE)


@functools.cache
def _why_missing(variant: str, folder: Path) -> str:
    """Return why programs of this build do not run here; empty when they do."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "no C compiler"
    source, program = folder / f"{variant}.c", folder / variant
    source.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(
        [compiler, f"-fsanitize={FLAG[variant]}", "-o", str(program), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        return f"the compiler has no runtime for -fsanitize={FLAG[variant]}"
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    return f"a program built with it does not start here: {ran.stderr.strip()}" if ran.returncode else ""


@functools.cache
def _build_variant(variant: str) -> subprocess.CompletedProcess[str]:
    return native.run_make(*native.sanitized_words(variant))


@pytest.fixture(params=SANITIZERS)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Provide each sanitizer in turn, with its build ready."""
    name: str = request.param
    reason = _why_missing(name, tmp_path_factory.getbasetemp())
    if reason:
        pytest.skip(reason)
    built = _build_variant(name)
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    return name
