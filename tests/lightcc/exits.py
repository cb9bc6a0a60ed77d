# SPDX-License-Identifier: Apache-2.0
"""Ends processes with lanes: pairs of ranks, which are forks of a process that started no thread."""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lightcc
from tests.lightcc import digits

GROUP_TIMEOUT_S = 5
END_S = 60  # the time that a busy machine takes
SETTINGS = lightcc.Settings(two_d=True, intra_size=1, inter_dtype="int8", topk=True, streams=2)


def train(rank: int, meeting: Path, steps: int, *, destroys: bool, own_signal: int = 0) -> None:
    """Be one of two ranks; in the middle, perhaps send a signal to oneself."""
    lightcc.init(SETTINGS)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=2,
        timeout=dt.timedelta(seconds=GROUP_TIMEOUT_S if own_signal else END_S),
    )
    ddp = DistributedDataParallel(digits.network(16, seed=0))
    for step in range(steps):
        ddp(torch.randn(4, 64)).sum().backward()
        if own_signal and rank == 1 and step == steps // 2:
            os.kill(os.getpid(), own_signal)
    assert lightcc.stats(ddp)["steps"] == steps
    if destroys:
        dist.destroy_process_group()


def ended(pid: int) -> int:
    """Wait for a process; return its exit status, or -1 where it does not end."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


def start(folder: Path, number: int, own_signal: int) -> list[int]:
    """Fork two ranks that train; return their numbers. A fork ends as programs do, by an exception."""
    pids = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            with (folder / "stderr").open("a") as file:
                os.dup2(file.fileno(), sys.stderr.fileno())
            train(rank, folder / f"meeting{number}", 6, destroys=number % 2 == 0, own_signal=own_signal)
            sys.exit()
        pids.append(pid)
    return pids


def run(folder: str, signals: list[int]) -> dict[str, object]:
    """Start a pair for each signal, which one rank of it sends itself; 0: both end by themselves.

    Return the exit statuses, and what was written to stderr. Those that wait for a rank that is gone do so
    beside the others.
    """
    pairs = []
    for number, own_signal in enumerate(signals):
        pids = start(Path(folder), number, own_signal)
        pairs.append(pids if own_signal else [ended(pid) for pid in pids])
    for place, own_signal in enumerate(signals):
        if own_signal:
            first, second = pairs[place]
            status = ended(first)
            os.kill(second, signal.SIGKILL)
            pairs[place] = [status, ended(second)]
    return {"statuses": pairs, "stderr": (Path(folder) / "stderr").read_text()}
