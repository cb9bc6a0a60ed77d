# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the C tests for pytest: which programs there are, the tests of each, what it printed."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
PLUGIN_DIR = ROOT / "plugin"
TESTS_DIR = ROOT / "tests"
KINDS = ("unit", "script", "golden")
TEST_NAME = re.compile(r"^(?:static )?void (test_\w+)\(void \*\*", re.MULTILINE)
OUTCOME = re.compile(r"^\[\s+(?P<outcome>OK|FAILED|SKIPPED)\s+\] (?P<name>[\w.]+)$", re.MULTILINE)
BUILD_TIMEOUT_S = 1500
RUN_TIMEOUT_S = 300
TAIL_CHARS = 6000
LOWEST_PRIORITY = 19
POLL_S = 0.05
AHEAD = """
import json, pathlib, sys
from tests import native
native.make_each(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
"""


@dataclasses.dataclass(frozen=True)
class Ran:
    """One run of a program: how it ended, all that it printed, and the outcome of each test that it named."""

    code: int
    output: str
    outcomes: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Cross:
    """Another machine's programs: words for make, what starts a program of it, how long one may take."""

    make: tuple[str, ...]
    start: tuple[str, ...]
    timeout_s: int


def list_programs(machine: str = platform.machine()) -> list[str]:
    """List the C test programs as kind/name; those of harp-nccl are for x86-64."""
    other = {"test_box"} if machine != "x86_64" else set()
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


def _try_lock(lock: TextIO) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _raise_priority(group: str) -> None:
    """Give a make in the background the priority of who waits for it, which may take root."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        if group and ours < os.getpriority(os.PRIO_PGRP, int(group)):
            os.setpriority(os.PRIO_PGRP, int(group), ours)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[TextIO]:
    """Be the only one who makes: two makes in one folder would build the same files.

    Provides the lock's file, for the process group of a make that others may hasten.
    """
    (folder / "build").mkdir(exist_ok=True)
    with (folder / "build" / ".making").open("a+") as lock:
        while not _try_lock(lock):
            lock.seek(0)
            _raise_priority(lock.read())
            time.sleep(POLL_S)
        lock.truncate(0)
        yield lock


def _make_argv(folder: Path, *words: str) -> list[str]:
    return ["make", "-C", str(folder), f"-j{os.cpu_count() or 1}", *words]


def run_make(*words: str, timeout_s: int = BUILD_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run make in the plugin's folder, when no other one runs; output and errors come together."""
    with _lock_folder(PLUGIN_DIR):
        return subprocess.run(
            _make_argv(PLUGIN_DIR, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
        )


def make_ahead(jobs: Sequence[Sequence[str]]) -> Callable[[], None]:
    """Make one thing after the other in the background; return what ends that.

    For what later tests need, while earlier ones mostly wait: at the lowest priority until somebody waits for
    it. What fails is made again by who needs it. A process of its own: tests count the files and threads of
    this one.
    """
    words = [sys.executable, "-c", AHEAD, str(PLUGIN_DIR), json.dumps(jobs)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

    def end() -> None:
        process.terminate()
        process.wait()

    return end


def make_each(folder: Path, jobs: Sequence[Sequence[str]]) -> None:
    """Be the process of make_ahead, until all is made, SIGTERM comes or its parent is gone."""
    ended, parent = threading.Event(), os.getppid()
    running: list[subprocess.Popen[bytes]] = []

    def end(*_: object) -> None:
        ended.set()
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, end)
    for words in jobs:
        with _lock_folder(folder) as lock:
            if ended.is_set() or os.getppid() != parent:
                return
            argv = ["nice", "-n", str(LOWEST_PRIORITY), *_make_argv(folder, "--keep-going", *words)]
            running[:] = [subprocess.Popen(argv, start_new_session=True)]
            lock.write(str(running[0].pid))
            lock.flush()
            if ended.is_set():  # before it was in the list
                running[0].terminate()
            running[0].wait()
        time.sleep(2 * POLL_S)  # who waits goes first


def _build_folder(variant: str) -> str:
    return f"build/{variant}" if variant else "build"


def program_words(variant: str = "", machine: str = platform.machine()) -> list[str]:
    """List the targets of make that compile every program of a variant."""
    return [
        f"VARIANT={variant}",
        *(f"{_build_folder(variant)}/tests/{name}" for name in list_programs(machine)),
    ]


def sanitized_words(variant: str) -> list[str]:
    """List the targets of make that build the plugin with a sanitizer, and what runs it."""
    return [f"VARIANT={variant}", "all", f"{_build_folder(variant)}/tests/unit/test_threads"]


def replay_words() -> list[str]:
    """List the targets of make that build what replays the fuzzers' inputs."""
    return ["VARIANT=asan", *(f"{_build_folder('asan')}/fuzz/replay_{target}" for target in fuzz_targets())]


@functools.cache
def build_all(variant: str, cross: Cross | None = None) -> bool:
    """Compile every program at once; where one does not compile, its own tests compile it again."""
    words = (*cross.make, *program_words(variant, "aarch64")) if cross else program_words(variant)
    return run_make("--keep-going", *words).returncode == 0


@functools.cache
def run_program(program: str, variant: str = "", cross: Cross | None = None) -> Ran:
    """Build and run one program, once per session."""
    target = f"{_build_folder(variant)}/tests/{program}"
    timeout_s = cross.timeout_s if cross else RUN_TIMEOUT_S
    if not build_all(variant, cross):
        built = run_make(f"VARIANT={variant}", *(cross.make if cross else ()), target)
        if built.returncode:
            return Ran(built.returncode, built.stdout[-TAIL_CHARS:], {})
    try:
        done = subprocess.run(
            [*(cross.start if cross else ()), str(PLUGIN_DIR / target)],
            cwd=PLUGIN_DIR,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        return Ran(-1, f"{output[-TAIL_CHARS:]}\nstill running after {timeout_s} s", {})
    found = {match["name"]: match["outcome"] for match in OUTCOME.finditer(done.stdout)}
    return Ran(done.returncode, done.stdout[-TAIL_CHARS:], found)
