# SPDX-License-Identifier: Apache-2.0
"""One rank of a job on a GPU, started by job.py: checks the collectives byte by byte, or times an allreduce.

It is an ordinary PyTorch program: nothing in it knows of HARP.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import time
from typing import Any

import torch
import torch.distributed as dist

LIMIT_S = 300  # the time of one collective, before PyTorch gives up
CHECK_SIZES = (8, 1000, 4096, 65_536, 1_000_000, 8 << 20)  # bytes
SEED = 20_000


def make_pattern(size: int, rank: int, turn: int) -> torch.Tensor:
    """Make bytes that are another for each rank and turn."""
    generator = torch.Generator().manual_seed(SEED + 1000 * turn + rank)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)


def make_numbers(count: int, rank: int, turn: int) -> torch.Tensor:
    """Make small integers, whose sum is exact in float32."""
    generator = torch.Generator().manual_seed(SEED + 1000 * turn + rank)
    return torch.randint(-1000, 1000, (count,), generator=generator).to(torch.float32)


def wrong_of_allreduce(size: int, rank: int, world: int, turn: int) -> int:
    """Sum over the ranks and count the elements that differ from the sum made here."""
    count = max(size // 4, 1)
    data = make_numbers(count, rank, turn).cuda()
    dist.all_reduce(data)
    expected = torch.stack([make_numbers(count, other, turn) for other in range(world)]).sum(dim=0)
    return int((data.cpu() != expected).sum())


def wrong_of_sendrecv(size: int, rank: int, world: int, turn: int) -> int:
    """Send to the next rank, receive from the one before, and count the bytes that differ."""
    after, before = (rank + 1) % world, (rank - 1) % world
    outgoing, incoming = make_pattern(size, rank, turn).cuda(), torch.zeros(size, dtype=torch.uint8).cuda()
    operations = [dist.P2POp(dist.isend, outgoing, after), dist.P2POp(dist.irecv, incoming, before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    torch.cuda.synchronize()
    return int((incoming.cpu() != make_pattern(size, before, turn)).sum())


def wrong_of_alltoall(size: int, rank: int, world: int, turn: int) -> int:
    """Return every rank a share and count the bytes that differ."""
    share = max(size // world, 1)
    outgoing = make_pattern(share * world, rank, turn).cuda()
    incoming = torch.zeros(share * world, dtype=torch.uint8).cuda()
    dist.all_to_all_single(incoming, outgoing)
    expected = torch.cat(
        [make_pattern(share * world, other, turn)[rank * share : (rank + 1) * share] for other in range(world)]
    )
    return int((incoming.cpu() != expected).sum())


CHECKS = {"allreduce": wrong_of_allreduce, "sendrecv": wrong_of_sendrecv, "alltoall": wrong_of_alltoall}


def check_operation(operation: str, rank: int, world: int, turns: int) -> dict[str, Any]:
    """Run one operation at every size; return the wrong elements of all ranks."""
    wrong = {}
    for size in CHECK_SIZES:
        mine = sum(CHECKS[operation](size, rank, world, turn) for turn in range(turns))
        everyone = torch.tensor([mine], dtype=torch.int64).cuda()
        dist.all_reduce(everyone)
        wrong[str(size)] = int(everyone.item())
    return {"operation": operation, "wrong": wrong}


def time_allreduce(sizes: list[int], turns: int) -> dict[str, Any]:
    """Time an allreduce of each size: microseconds of one, and whether its result was right."""
    times, wrong = {}, {}
    for size in sizes:
        data = torch.ones(max(size // 4, 1), dtype=torch.float32).cuda()
        for _ in range(3):
            dist.all_reduce(data)
        data.fill_(1.0)
        dist.all_reduce(torch.zeros(1).cuda())  # a barrier that leaves the choice of the GPU to nobody
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(turns):
            dist.all_reduce(data, op=dist.ReduceOp.MAX)
        torch.cuda.synchronize()
        times[str(size)] = (time.perf_counter() - began) / turns * 1e6
        wrong[str(size)] = int((data != 1.0).sum().item())
    return {"time_us": times, "wrong": wrong}


def main() -> None:
    """Join the job, run the operation of the command line, report from rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meeting", required=True, help="the file by which the ranks find each other")
    parser.add_argument("--check", choices=CHECKS, help="check this operation")
    parser.add_argument("--measure", help="time an allreduce of these sizes (bytes, comma list)")
    parser.add_argument("--turns", type=int, default=3, help="how often at each size")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(0)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{options.pending}",
        rank=rank,
        world_size=world,
        timeout=dt.timedelta(seconds=LIMIT_S),
    )
    if options.check:
        result = check_operation(options.check, rank, world, options.turns)
    else:
        result = time_allreduce([int(size) for size in options.measure.split(",")], options.turns)
    result["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    dist.destroy_process_group()
    if rank == 0:
        print(f"result: {json.dumps(result)}", flush=True)


if __name__ == "__main__":
    main()
