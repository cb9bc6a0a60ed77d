# SPDX-License-Identifier: Apache-2.0
"""How processes with lanes end: python -m tests.lightcc.exits FOLDER SIGNAL...

For each signal's number two ranks train, and one of them is sent it; 0: both end by themselves. Ranks are
forks of one process, which imports torch once.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it, and each rank would do so anew
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


def main() -> None:
    """Start pairs of ranks; print each one's exit status."""
    torch.set_num_threads(1)
    folder, *signals = sys.argv[1:]
    for number, own_signal in enumerate(map(int, signals)):
        pids = []
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                meeting = Path(folder) / f"meeting{number}"
                train(rank, meeting, 6, destroys=number % 2 == 0, own_signal=own_signal)
                return
            pids.append(pid)
        print(ended(pids[0]), end=" ", flush=True)
        if own_signal:
            os.kill(pids[1], signal.SIGKILL)
        print(ended(pids[1]), flush=True)


if __name__ == "__main__":
    main()
