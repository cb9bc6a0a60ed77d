# SPDX-License-Identifier: Apache-2.0
"""Lossy forms of a vector of fp32: its largest elements, or 8 bits for each element.

A codec has no state. encode() subtracts from its argument what the message says, so that what is left, the
residual, can be added to the next vector (error feedback): message and residual together are the vector.
A message is a uint8 tensor of wire_bytes, a multiple of 8, so that messages can lie one behind the other.
"""

from __future__ import annotations

import math

import torch

ALIGNMENT = 8  # bytes
INDICES_MAX = 1 << 31  # a message's indices are int32
BLOCK = 256  # elements that share a scale


class TopK:
    """The k elements of the greatest magnitude: k indices as int32, then k values as fp32 or fp16.

    A value beyond fp16's range is clamped to it; what is cut off stays in the residual. Infinities and NaN
    count as the greatest, and are sent as they are.
    """

    def __init__(self, numel: int, ratio: float, *, fp16: bool) -> None:
        if numel >= INDICES_MAX:
            raise ValueError(f"{numel} elements cannot be numbered by int32")
        self.k = min(numel, max(1, math.ceil(ratio * numel)))
        self._type = torch.float16 if fp16 else torch.float32
        self._end = self.k * (4 + self._type.itemsize)
        self.wire_bytes = -(-self._end // ALIGNMENT) * ALIGNMENT

    def encode(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the message for a vector of fp32 [numel]; leave the residual in the vector."""
        index = torch.topk(vector.abs(), self.k, sorted=False).indices
        value = vector[index]
        if self._type is torch.float16:
            limit = torch.finfo(torch.float16).max
            value = torch.where(value.isfinite(), value.clamp(-limit, limit), value)
        sent = value.to(self._type)
        vector[index] -= sent.float()
        wire = torch.zeros(self.wire_bytes, dtype=torch.uint8, device=vector.device)
        index_field, value_field = self._fields(wire)
        index_field.copy_(index)
        value_field.copy_(sent)
        return wire

    def add(self, total: torch.Tensor, wire: torch.Tensor) -> None:
        """Add what a message says to a vector of fp32 [numel]."""
        index, value = self._fields(wire)
        total[index.long()] += value.float()  # no index occurs twice

    def _fields(self, wire: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = 4 * self.k
        return wire[:middle].view(torch.int32), wire[middle : self._end].view(self._type)


class Int8:
    """Blocks of 256 elements, the last one padded: a scale as fp32 for each, then int8 for each element.

    An infinity or NaN makes its whole block infinite or NaN.
    """

    def __init__(self, numel: int) -> None:
        self.blocks = -(-numel // BLOCK)
        self._numel = numel
        self._end = self.blocks * (4 + BLOCK)
        self.wire_bytes = -(-self._end // ALIGNMENT) * ALIGNMENT

    def encode(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the message for a vector of fp32 [numel]; leave the residual in the vector."""
        rows = torch.nn.functional.pad(vector, (0, self.blocks * BLOCK - self._numel)).view(-1, BLOCK)
        scale = (rows.abs().amax(1, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        steps = (rows / scale).round_().clamp_(-127, 127).nan_to_num_(nan=0.0)
        vector -= (steps * scale).view(-1)[: self._numel]
        wire = torch.zeros(self.wire_bytes, dtype=torch.uint8, device=vector.device)
        scale_field, step_field = self._fields(wire)
        scale_field.copy_(scale)
        step_field.copy_(steps)
        return wire

    def add(self, total: torch.Tensor, wire: torch.Tensor) -> None:
        """Add what a message says to a vector of fp32 [numel]."""
        scale, steps = self._fields(wire)
        total += (steps.float() * scale).view(-1)[: self._numel]

    def _fields(self, wire: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = 4 * self.blocks
        scale = wire[:middle].view(torch.float32).view(-1, 1)
        return scale, wire[middle : self._end].view(torch.int8).view(-1, BLOCK)
