# SPDX-License-Identifier: Apache-2.0
"""Sums of a vector over all ranks of a plane: in rows first, so that a hop over the columns sends the least.

Every way to sum returns the same bits on all ranks: messages are added in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from lightcc.codec import BLOCK, Int8, TopK
from lightcc.groups import Plane

# torch 2.13 named them anew, and warns of the old names.
_reduce_scatter = getattr(
    dist, "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
)
_all_gather = getattr(
    dist, "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
)
Hop = Callable[[torch.Tensor], torch.Tensor]  # a vector to its sum over a column, perhaps in place


def through_rows(vector: torch.Tensor, plane: Plane, hop: Hop) -> torch.Tensor:
    """Return the sum of a vector [n] over the plane, perhaps in the vector's own memory.

    In a row, reduce-scatter and all-gather; between them the hop sums a shard of [ceil(n / row_size)].
    """
    if plane.row is None:
        return hop(vector)
    full = _padded(vector, plane.row_size)
    shard = torch.empty(full.numel() // plane.row_size, dtype=full.dtype, device=full.device)
    _reduce_scatter(shard, full, group=plane.row)
    shard = hop(shard)
    _all_gather(full, shard.to(full.dtype), group=plane.row)
    return full[: vector.numel()]


def shard_numel(numel: int, plane: Plane) -> int:
    """Return how many elements a hop of through_rows() sums for a vector of numel."""
    return -(-numel // plane.row_size)


def dense(vector: torch.Tensor, group: dist.ProcessGroup, dtype: torch.dtype | None) -> torch.Tensor:
    """Return the sum of a vector over a group; dtype, if it is smaller, is that of the messages."""
    if dtype is None or dtype.itemsize >= vector.element_size():
        vector = vector.contiguous()
        dist.all_reduce(vector, group=group)
        return vector
    narrow = vector.to(dtype)
    dist.all_reduce(narrow, group=group)
    return narrow.to(vector.dtype)


def dense_bytes(numel: int, itemsize: int, ranks: int) -> int:
    """Return what a rank sends in an all-reduce by a ring."""
    return 2 * (ranks - 1) * numel * itemsize // ranks


class Feedback:
    """Residuals of one vector, in fp32: what messages did not say yet."""

    def __init__(self, numels: list[int], device: torch.device) -> None:
        self.residuals = [torch.zeros(numel, dtype=torch.float32, device=device) for numel in numels]

    def commit(self, total: torch.Tensor, residuals: list[torch.Tensor]) -> None:
        """Take new residuals, unless the sum is not finite.

        Then all ranks that share it keep their old ones: the step is skipped, and an infinity would stay.
        """
        is_finite = torch.isfinite(total).all()
        self.residuals = [
            torch.where(is_finite, new, old) for new, old in zip(residuals, self.residuals, strict=True)
        ]

    def rescale(self, factor: torch.Tensor) -> None:
        """Multiply the residuals, whose unit is that of the gradients."""
        for residual in self.residuals:
            residual.mul_(factor.to(residual.device))


class TopKHop(Feedback):
    """Sums the largest elements of all ranks of a column: each gathers the messages of all."""

    def __init__(
        self, numel: int, group: dist.ProcessGroup, ratio: float, *, fp16: bool, device: torch.device
    ) -> None:
        super().__init__([numel], device)
        self._codec = TopK(numel, ratio, fp16=fp16)
        self._group, self._ranks = group, dist.get_world_size(group)
        self.sent_bytes = (self._ranks - 1) * self._codec.wire_bytes

    def __call__(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the sum over the column of what the messages say, as fp32 [numel]."""
        rest = self.residuals[0] + vector.float()
        total = torch.zeros_like(rest)
        for message in _gathered(self._codec.encode(rest), self._group, self._ranks):
            self._codec.add(total, message)
        self.commit(total, [rest])
        return total


class Int8Hop(Feedback):
    """Sums in 8 bits: each rank of a column sums one part of the vector, and sends it in 8 bits to all.

    The first residual is of the messages for the parts, the second of the rank's own part's sum.
    """

    def __init__(self, numel: int, group: dist.ProcessGroup, *, device: torch.device) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)
        part = -(-numel // (self._ranks * BLOCK)) * BLOCK
        super().__init__([part * self._ranks, part], device)
        self._codec = Int8(part)
        self.sent_bytes = 2 * (self._ranks - 1) * self._codec.wire_bytes

    def __call__(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the sum over the column of what the messages say, as fp32 [numel]."""
        rest = self.residuals[0].clone()
        rest[: vector.numel()] += vector
        messages = torch.stack([self._codec.encode(part) for part in rest.view(self._ranks, -1)])
        own = self.residuals[1].clone()
        for message in _exchanged(messages, self._group):
            self._codec.add(own, message)
        total = torch.zeros_like(rest)
        parts = total.view(self._ranks, -1)
        gathered = _gathered(self._codec.encode(own), self._group, self._ranks)
        for part, message in zip(parts, gathered, strict=True):
            self._codec.add(part, message)
        self.commit(total, [rest, own])
        return total[: vector.numel()]


def _exchanged(messages: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Send message i of [ranks, bytes] to rank i of a group; return what each rank sent to this one.

    The receives are posted before the sends. gloo's all-to-all, and its all-gather of two ranks, post a send
    first: the notification that a rank can receive then waits behind the data that the rank sends, and a link
    carries one direction after the other.
    """
    received = messages.clone()  # this rank's own message is in it
    own = dist.get_rank(group)
    others = [(dist.get_global_rank(group, rank), rank) for rank in range(len(messages)) if rank != own]
    operations = [dist.P2POp(dist.irecv, received[rank], peer, group) for peer, rank in others]
    operations += [dist.P2POp(dist.isend, messages[rank], peer, group) for peer, rank in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


def _gathered(message: torch.Tensor, group: dist.ProcessGroup, ranks: int) -> torch.Tensor:
    """Return the messages of all ranks of a group, [ranks, bytes]."""
    if ranks == 2:
        return _exchanged(message.expand(ranks, -1), group)
    every = torch.empty(ranks * message.numel(), dtype=torch.uint8, device=message.device)
    _all_gather(every, message, group=group)
    return every.view(ranks, -1)


def _padded(vector: torch.Tensor, multiple: int) -> torch.Tensor:
    rest = -vector.numel() % multiple
    return torch.nn.functional.pad(vector, (0, rest)) if rest else vector.contiguous()
