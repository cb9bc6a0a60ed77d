# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the C tests for pytest: which programs there are, which tests each holds, what it said."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGIN_DIR = ROOT / "plugin"
TESTS_DIR = ROOT / "tests"
KINDS = ("unit", "script", "golden")
TEST_NAME = re.compile(r"^(?:static )?void (test_\w+)\(void \*\*", re.MULTILINE)
OUTCOME = re.compile(r"^\[\s+(?P<outcome>OK|FAILED|SKIPPED)\s+\] (?P<name>[\w.]+)$", re.MULTILINE)
BUILD_TIMEOUT_S = 580
RUN_TIMEOUT_S = 300
TAIL_CHARS = 6000


@dataclasses.dataclass(frozen=True)
class Ran:
    """One run of a program: how it ended, all that it printed, and the outcome of each test that it named."""

    code: int
    output: str
    outcomes: dict[str, str]


def programs() -> list[str]:
    """List the C test programs as kind/name; those of harp-nccl are for x86-64."""
    other = {"test_box"} if platform.machine() != "x86_64" else set()
    return [
        f"{kind}/{file.stem}"
        for kind in KINDS
        for file in sorted((TESTS_DIR / kind).glob("test_*.c"))
        if file.stem not in other
    ]


def test_names(program: str) -> list[str]:
    """Read a program's source for its test functions; one that it forgets to register then fails."""
    return list(dict.fromkeys(TEST_NAME.findall((TESTS_DIR / f"{program}.c").read_text())))


def fuzz_targets() -> list[str]:
    """List what tests/fuzz fuzzes."""
    return [file.stem.removeprefix("fuzz_") for file in sorted((TESTS_DIR / "fuzz").glob("fuzz_*.c"))]


def make(*words: str, timeout_s: int = BUILD_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run make in the plugin's folder; output and errors come together."""
    return subprocess.run(
        ["make", "-C", str(PLUGIN_DIR), f"-j{os.cpu_count() or 1}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
    )


def _folder(variant: str) -> str:
    return f"build/{variant}" if variant else "build"


@functools.cache
def build_all(variant: str) -> bool:
    """Compile every program at once; where one does not compile, its own tests ask for it again."""
    targets = (f"{_folder(variant)}/tests/{name}" for name in programs())
    return make("--keep-going", f"VARIANT={variant}", *targets).returncode == 0


@functools.cache
def run_program(program: str, variant: str = "") -> Ran:
    """Build and run one program, once per session."""
    target = f"{_folder(variant)}/tests/{program}"
    if not build_all(variant):
        built = make(f"VARIANT={variant}", target)
        if built.returncode:
            return Ran(built.returncode, built.stdout[-TAIL_CHARS:], {})
    try:
        done = subprocess.run(
            [str(PLUGIN_DIR / target)],
            cwd=PLUGIN_DIR,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        return Ran(-1, f"{said[-TAIL_CHARS:]}\nstill running after {RUN_TIMEOUT_S} s", {})
    found = {match["name"]: match["outcome"] for match in OUTCOME.finditer(done.stdout)}
    return Ran(done.returncode, done.stdout[-TAIL_CHARS:], found)
