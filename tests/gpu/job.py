# SPDX-License-Identifier: Apache-2.0
"""Launches a job of two ranks on one GPU: environment, processes, reading NCCL's log. Needs no GPU itself.

Two ranks may share a GPU when each believes itself on a host of its own (NCCL_HOSTID); then NCCL also has no
other way between them than the network. Both are processes on this machine; the ENI is the loopback interface
unless another is named.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harpctl.errors import ExitCode, HarpError
from harplab.bench.nccl_run import clean_environment

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
RANKS = 2
RUN_TIMEOUT_S = 400
PROBE_TIMEOUT_S = 120  # importing PyTorch takes a while
PYTHON_VARIABLE = "HARP_GPU_PYTHON"
PROBE = """
try:
    import torch
except ImportError:
    print("no PyTorch")
else:
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
    elif not torch.distributed.is_nccl_available():
        print("PyTorch has no NCCL")
    else:
        print("ready")
"""
ROUTE = re.compile(r" via (?:NET/)?(?P<way>\w+)")
RESULT_MARK = "result: "  # a worker's last word, before its JSON


@dataclasses.dataclass(frozen=True)
class Job:
    """A finished job: exit codes and output by rank, NCCL's logs, what rank 0 reported."""

    codes: tuple[int, ...]
    outputs: tuple[str, ...]
    logs: tuple[str, ...]

    @property
    def result(self) -> dict[str, Any]:
        """Return what rank 0 reported; empty if it did not come to that."""
        return read_result(self.outputs[0])

    def describe(self) -> str:
        """Return all that is known, for the message of a failed assertion."""
        parts = [f"exit codes {self.codes}"]
        for rank, (output, log) in enumerate(zip(self.outputs, self.logs, strict=True)):
            parts.append(f"--- rank {rank}\n{output[-4000:]}\n--- rank {rank}, NCCL's log\n{log[-6000:]}")
        return "\n".join(parts)


def harp_environment(plugin: Path, interface: str) -> dict[str, str]:
    """Set what puts NCCL on HARP."""
    return {
        "NCCL_NET_PLUGIN": str(plugin),
        "NCCL_NET": "HARP",
        "HARP_IFNAME": f"={interface}",
    }


def rank_environment(
    rank: int, base: Mapping[str, str], net: Mapping[str, str], interface: str, folder: Path
) -> dict[str, str]:
    """Make the environment of one rank: a host of its own, no way but the network, its log in a file."""
    return {
        **clean_environment(base),
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "NCCL_HOSTID": f"harp-test-{rank}",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(folder / f"rank{rank}.log"),
        **net,
    }


def read_result(output: str) -> dict[str, Any]:
    """Find a worker's report in its output."""
    for line in reversed(output.splitlines()):
        if line.startswith(RESULT_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(RESULT_MARK))
            return found
    return {}


def routes_of_channels(log: str) -> set[str]:
    """List the ways of channels according to the log: HARP of "via NET/HARP/0", or P2P of "via P2P/IPC"."""
    return set(ROUTE.findall(log))


def candidate_pythons(environment: Mapping[str, str]) -> list[str]:
    """List the Pythons that may have PyTorch: the named one alone, else this one and the system's."""
    named = environment.get(PYTHON_VARIABLE)
    if named:
        return [named]
    found = [sys.executable]
    for folder in environment.get("PATH", "").split(os.pathsep):
        file = Path(folder) / "python3"
        if folder and os.access(file, os.X_OK) and str(file) not in found:
            found.append(str(file))
    return found


def find_python(pythons: Sequence[str]) -> str:
    """Return the first Python whose PyTorch has NCCL and sees a GPU; a HarpError contains why none does."""
    reasons = []
    for python in pythons:
        try:
            done = subprocess.run(
                [python, "-c", PROBE], capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{python}: {error}")
            continue
        lines = done.stdout.strip().splitlines()[-1:] or done.stderr.strip().splitlines()[-1:] or ["no word"]
        if done.returncode == 0 and lines == ["ready"]:
            return python
        reasons.append(f"{python}: {lines[0]}")
    raise HarpError("; ".join(reasons), f"{PYTHON_VARIABLE} names another Python.", ExitCode.MISSING)


def run_job(
    python: str,
    arguments: Sequence[str],
    net: Mapping[str, str],
    interface: str,
    timeout_s: int = RUN_TIMEOUT_S,
) -> Job:
    """Start the ranks and wait for all; when one fails the others are given a while and then ended."""
    with tempfile.TemporaryDirectory(prefix="harp-gpu-") as scratch:
        folder = Path(scratch)
        ranks = []
        for rank in range(RANKS):
            with (folder / f"rank{rank}.out").open("wb") as output:
                ranks.append(
                    subprocess.Popen(
                        [python, str(WORKER), f"--meeting={folder / 'meeting'}", *arguments],
                        env=rank_environment(rank, os.environ, net, interface, folder),
                        cwd=ROOT,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        try:
            codes = _wait_for_ranks(ranks, timeout_s)
        finally:
            for process in ranks:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return Job(
            codes,
            tuple((folder / f"rank{rank}.out").read_text(errors="replace") for rank in range(RANKS)),
            tuple(_read_if_there(folder / f"rank{rank}.log") for rank in range(RANKS)),
        )


def _wait_for_ranks(ranks: Sequence[subprocess.Popen[bytes]], timeout_s: int) -> tuple[int, ...]:
    """Wait for all; the first to end badly shortens the others' time, since they may wait for it."""
    codes = []
    for process in ranks:
        try:
            codes.append(process.wait(timeout=timeout_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            codes.append(process.wait())
        if codes[-1]:
            timeout_s = min(timeout_s, 30)
    return tuple(codes)


def _read_if_there(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
