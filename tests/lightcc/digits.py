# SPDX-License-Identifier: Apache-2.0
"""An ordinary script for DistributedDataParallel, which knows nothing of lightcc: learns handwritten digits.

python -m lightcc.launch --nproc-per-node 4 tests/lightcc/digits.py [--steps N] [--seed N] [--width N]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TESTED = 360  # images that no rank learns
BATCH = 16  # the batch of each rank


def network(width: int, seed: int) -> torch.nn.Module:
    """Return a perceptron of two hidden layers, the same on all ranks."""
    torch.manual_seed(seed)
    nn = torch.nn
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    return nn.Sequential(*layers)


def train(
    net: torch.nn.Module, steps: int, seed: int, make: Callable[[torch.nn.Module], torch.nn.Module]
) -> float:
    """Train on all ranks of the default group; return the share of the test images that are recognized."""
    data = np.load(Path(__file__).with_name("digits.npz"))
    images = torch.from_numpy(data["images"]).float() / 16
    labels = torch.from_numpy(data["labels"]).long()
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(images)))
    tested, learned = order[:TESTED], order[TESTED:]
    ddp = make(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1000 + dist.get_rank() + 100 * seed)
    for _ in itertools.repeat(None, steps):
        chosen = learned[torch.randint(len(learned), (BATCH,), generator=generator)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    with torch.no_grad():
        return float((net(images[tested]).argmax(1) == labels[tested]).float().mean())


def main() -> None:
    """Train by the command line's options; the first rank prints the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=256)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    accuracy = train(network(given.width, given.seed), given.steps, given.seed, DistributedDataParallel)
    if dist.get_rank() == 0:
        print(f"{100 * accuracy:.2f} % of the test images recognized after {given.steps} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
