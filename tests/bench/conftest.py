# SPDX-License-Identifier: Apache-2.0
"""Builds harp-perf and the plugin that it is tested with, and starts ranks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
LAUNCHER_PREFIXES = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "FAKENET_", "NCCL_", "HARP_")
LAUNCHER_NAMES = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def clean_env() -> dict[str, str]:
    """Return this process's environment without what a launcher or a user may have put there."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHER_PREFIXES) and name not in LAUNCHER_NAMES
    }


def free_port() -> int:
    """Find a port that was free a moment ago, and the next one too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


@dataclass
class Ended:
    """One process that ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Decode standard output."""
        decoded: dict[str, Any] = json.loads(self.out)
        return decoded


@dataclass
class Perf:
    """harp-perf with the fake plugin."""

    program: Path
    plugin: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def argv(self, *args: object) -> list[str]:
        return [str(self.program), "--plugin", str(self.plugin), *map(str, args)]

    def start(self, *args: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start one process and leave it running."""
        child = subprocess.Popen(
            self.argv(*args),
            env=clean_env() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(child)
        return child

    def run(self, *args: object, env: Mapping[str, str] | None = None) -> Ended:
        """Run one process to its end."""
        return wait_for_end(self.start(*args, env=env))

    def ranks(
        self, count: int, *args: object, env: Mapping[str, str] | None = None, each: Sequence[object] = ()
    ) -> list[Ended]:
        """Run ranks that meet at a port; FAKENET_ME is the rank that the plugin is in."""
        children = self.start_ranks(count, *args, env=env, each=each)
        return [wait_for_end(child) for child in children]

    def start_ranks(
        self, count: int, *args: object, env: Mapping[str, str] | None = None, each: Sequence[object] = ()
    ) -> list[subprocess.Popen[str]]:
        meet = f"127.0.0.1:{free_port()}"
        return [
            self.start(
                *args,
                *each[rank : rank + 1],
                *("--rank", rank, "--nranks", count, "--rendezvous", meet),
                env=dict(env or {}) | {"FAKENET_ME": str(rank)},
            )
            for rank in range(count)
        ]


def wait_for_end(child: subprocess.Popen[str]) -> Ended:
    """Wait for the end of a process, which may not take for ever."""
    out, err = child.communicate(timeout=TIMEOUT_S)
    return Ended(child.returncode, out, err)


def compiler() -> str:
    """Find a C compiler."""
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not found:
        pytest.skip("no C compiler")
    return found


def build_shared(target: Path, *sources: Path) -> Path:
    """Compile sources into a shared library."""
    flags = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    include = f"-I{ROOT / 'plugin/src'}"
    argv = [*compiler().split(), *flags, include, "-o", str(target), *map(str, sources), "-lm"]
    subprocess.run(argv, check=True)
    return target


@pytest.fixture(scope="session")
def built_perf(tmp_path_factory: pytest.TempPathFactory) -> Perf:
    subprocess.run(["make", "-s", "-C", str(ROOT / "plugin"), "bench"], check=True, stdout=subprocess.DEVNULL)
    plugin = tmp_path_factory.mktemp("fakenet") / "libnccl-net-fake.so"
    build_shared(plugin, ROOT / "tests/bench/fakenet.c")
    return Perf(ROOT / "plugin/build/harp-perf", plugin)


@pytest.fixture
def perf(built_perf: Perf) -> Iterator[Perf]:
    mine = Perf(built_perf.program, built_perf.plugin)
    yield mine
    for child in mine.running:
        if child.poll() is None:
            child.kill()
            child.communicate()
