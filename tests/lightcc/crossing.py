# SPDX-License-Identifier: Apache-2.0
"""The collectives between hosts left out, and counted: a step then costs what the ranks and rows do alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import lightcc.reduce

# How many messages of gloo a rank sends for each other one. It halves what a rank passes on: an all-reduce
# passes halves of sums, then of results; an all-gather halves of each rank's tensor.
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL = 4, 2, 1
Tensor = Any


@dataclass
class Crossing:
    """What would have left this host."""

    messages: int = 0

    def count(self, group: dist.ProcessGroup | None, for_each: int) -> None:
        """Count a collective: a ring of all ranks leaves a host once, those of columns once for each rank."""
        ranks, every = dist.get_world_size(group), dist.get_world_size()
        edges = 1 if ranks == every else every // ranks
        self.messages += for_each * (ranks - 1) * edges

    def all_reduce(self, tensor: Tensor, group: dist.ProcessGroup | None = None, *, async_op: bool = False) -> Any:
        """Leave the tensor as it is."""
        self.count(group, ALL_REDUCE)
        if not async_op:
            return None
        future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        future.set_result([tensor])
        return mock.Mock(get_future=lambda: future)

    def all_to_all(self, received: Tensor, sent: Tensor, group: dist.ProcessGroup) -> None:
        """Receive one's own messages."""
        self.count(group, ALL_TO_ALL)
        received.copy_(sent)

    def gathered(self, message: Tensor, group: dist.ProcessGroup, ranks: int) -> Tensor:
        """Return one's own message as that of all ranks."""
        self.count(group, ALL_GATHER)
        return message.repeat(ranks).view(ranks, -1)


@contextmanager
def left_out() -> Iterator[Crossing]:
    """Leave out what crosses hosts, in lightcc and in torch's own hooks."""
    crossing = Crossing()
    with (
        mock.patch.object(dist, "all_reduce", crossing.all_reduce),
        mock.patch.object(dist, "all_to_all_single", crossing.all_to_all),
        mock.patch.object(lightcc.reduce, "_gathered", crossing.gathered),
    ):
        yield crossing
