# SPDX-License-Identifier: Apache-2.0
"""Collectives between hosts made short, and counted: a step then costs what ranks and rows do, and their waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import lightcc.reduce

# How many messages of gloo a rank sends for each other one. It halves what a rank passes on: an all-reduce
# passes halves of sums, then of results; an all-gather halves of each rank's tensor.
ALL_REDUCE, ALL_GATHER, EXCHANGE = 4, 2, 1
SHORT = 8  # bytes of a message that are sent
_all_reduce, _exchanged, _all_gather = dist.all_reduce, lightcc.reduce._exchanged, lightcc.reduce._all_gather
_reduce_scatter = lightcc.reduce._reduce_scatter
Tensor = Any


@dataclass
class Crossing:
    """The messages and exchanges that would have left this host, had they been whole."""

    messages: int = 0
    hops: list[list[tuple[float, float, float]]] = field(default_factory=list)  # a rank's Spans after each row

    @contextmanager
    def exchange(self, group: dist.ProcessGroup | None, sent_bytes: int) -> Iterator[None]:
        """Record an exchange of a column."""
        begin = time.perf_counter()
        yield
        if dist.get_world_size(group) < dist.get_world_size():
            self.hops[-1].append((begin, time.perf_counter(), sent_bytes))

    def reduce_scatter(self, shard: Tensor, full: Tensor, group: dist.ProcessGroup) -> None:
        """Sum a row, which waits for all its ranks; a hop of the columns comes next."""
        _reduce_scatter(shard, full, group=group)
        self.hops.append([])

    def count(self, group: dist.ProcessGroup | None, for_each: int) -> None:
        """Count a collective: a ring of all ranks leaves a host once, those of columns once for each rank."""
        ranks, every = dist.get_world_size(group), dist.get_world_size()
        edges = 1 if ranks == every else every // ranks
        self.messages += for_each * (ranks - 1) * edges

    def all_reduce(self, tensor: Tensor, group: dist.ProcessGroup | None = None, *, async_op: bool = False) -> Any:
        """Leave the tensor as it is."""
        self.count(group, ALL_REDUCE)
        ranks = dist.get_world_size(group)
        with self.exchange(group, 2 * (ranks - 1) * tensor.nbytes // ranks):
            work = _all_reduce(torch.zeros(1), group=group, async_op=async_op)
        return work and mock.Mock(get_future=lambda: work.get_future().then(lambda _done: [tensor]))

    def exchanged(self, messages: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Return one's own messages."""
        self.count(group, EXCHANGE)
        with self.exchange(group, messages[1:].nbytes):
            _exchanged(messages[:, :SHORT].contiguous(), group)
        return messages.clone()

    def all_gather(self, every: Tensor, message: Tensor, group: dist.ProcessGroup) -> None:
        """Gather one's own message as that of all ranks, unless the group is a row."""
        ranks = dist.get_world_size(group)
        if ranks < dist.get_world_size():
            _all_gather(every, message, group=group)
            return
        self.count(group, ALL_GATHER)
        _all_gather(every[: ranks * SHORT], message[:SHORT], group=group)
        every.view(ranks, -1).copy_(message)


@contextmanager
def shortened(crossing: Crossing) -> Iterator[None]:
    """Make what crosses hosts short, in lightcc and in torch's own hooks, and count it."""
    with (
        mock.patch.object(dist, "all_reduce", crossing.all_reduce),
        mock.patch.object(lightcc.reduce, "_exchanged", crossing.exchanged),
        mock.patch.object(lightcc.reduce, "_all_gather", crossing.all_gather),
        mock.patch.object(lightcc.reduce, "_reduce_scatter", crossing.reduce_scatter),
    ):
        yield
