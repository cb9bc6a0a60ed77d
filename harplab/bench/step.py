# SPDX-License-Identifier: Apache-2.0
"""One step of data-parallel training, for harp-nccl: buckets of gradients, each ready at a time of backward.

Gradients are of 32 bits. Buckets are those of PyTorch's DistributedDataParallel after its first step: tensors
in the reverse order of the parameters; a bucket is closed by the tensor that fills it, the first one at 1 MiB
and all others at 25 MiB. Forward takes a third of the compute time, backward the rest; a layer's share is
that of its work. A bucket is ready when backward has passed the layers of all its tensors. The optimizer is
part of the compute time.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from harpctl.errors import ExitCode, HarpError
from harplab.bench.models import Model
from harplab.bench.nccl_measure import START_S, NcclJob
from harplab.lab.spec import QUEUE_MAX_MS, LabSpec

ELEMENT_BYTES = 4
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
FORWARD_SHARE = 1 / 3  # backward multiplies twice where forward multiplies once
BUCKETS_MAX, COMPUTE_MAX_MS = 256, 3600e3  # harp-nccl's
PATH_MBPS, PATHS_MAX = 5000, 8  # as the plugin's defaults
STEP_TIMES_MAX = 50.0  # a step that takes more times its compute time hangs
CHECKED_BYTES_PER_S = 1e7  # at least


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together, ready after this share of the step's compute time."""

    bytes: int
    ready_share: float


def _gradients_of(model: Model) -> Iterator[Bucket]:
    """Yield each tensor's gradient, as if it was a bucket of its own, in the order of backward."""
    total, done = sum(layer.work for layer in model.layers), 0
    for layer in reversed(model.layers):
        done += layer.work
        ready_share = FORWARD_SHARE + (1 - FORWARD_SHARE) * done / total
        for elements in reversed(layer.elements):
            yield Bucket(elements * ELEMENT_BYTES, ready_share)


def buckets_of(
    model: Model, first_bytes: int = FIRST_BUCKET_BYTES, other_bytes: int = BUCKET_BYTES
) -> tuple[Bucket, ...]:
    """Return the model's buckets in the order in which they are ready."""
    buckets: list[Bucket] = []
    size = 0
    for gradient in _gradients_of(model):
        size += gradient.bytes
        if size >= (other_bytes if buckets else first_bytes):
            buckets.append(Bucket(size, gradient.ready_share))
            size = 0
    return (*buckets, Bucket(size, 1.0)) if size else tuple(buckets)


def even_buckets(sizes_bytes: Sequence[int]) -> tuple[Bucket, ...]:
    """Return buckets of these sizes; backward makes each byte of them in the same time."""
    total = sum(sizes_bytes)
    return tuple(
        Bucket(size, FORWARD_SHARE + (1 - FORWARD_SHARE) * done / total)
        for size, done in zip(sizes_bytes, itertools.accumulate(sizes_bytes), strict=True)
    )


def require_step(buckets: Sequence[Bucket], compute_ms: float) -> None:
    """Raise HarpError for what harp-nccl does not take as a step."""
    if compute_ms > COMPUTE_MAX_MS:
        message = f"A step computes up to {COMPUTE_MAX_MS:.0f} ms in the lab, not {compute_ms:.0f} ms."
        raise HarpError(message, "--scale 1", ExitCode.USAGE)
    if len(buckets) > BUCKETS_MAX:
        message = f"A step has up to {BUCKETS_MAX} buckets, not {len(buckets)}."
        raise HarpError(message, exit_code=ExitCode.USAGE)
    for bucket in buckets:
        if not bucket.bytes or bucket.bytes % ELEMENT_BYTES:
            message = f"A bucket has elements of {ELEMENT_BYTES} bytes, not {bucket.bytes} bytes."
            raise HarpError(message, "1M,25M,25M", ExitCode.USAGE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepJob(NcclJob):
    """The work of every side: steps of this compute time; `iterations` is their number."""

    buckets: tuple[Bucket, ...]
    compute_ms: float
    warmup: int = 1

    def options(self) -> list[str]:
        """Write harp-nccl's options."""
        buckets = [f"{bucket.ready_share * self.compute_ms:.3f}:{bucket.bytes}" for bucket in self.buckets]
        words = [f"--step={','.join(buckets)}", f"--compute={self.compute_ms:.3f}", f"--ranks={self.ranks}"]
        words += [f"--iters={self.iterations}", f"--warmup={self.warmup}", f"--settle={self.settle_s:g}"]
        return [*words, "--check"] if self.check else words

    def timeout_s(self) -> float:
        """Bound a run by steps that hang."""
        steps = (self.iterations or 0) + self.warmup
        checked_s = sum(self.sizes_bytes) / CHECKED_BYTES_PER_S
        return START_S + self.settle_s + steps * STEP_TIMES_MAX * self.compute_ms / 1000 + checked_s


def rank_share(hosts: int, gpus: int, *, ring: bool) -> float:
    """Return how many times the bytes of a rank a host of so many GPUs sends, for which the rank stands.

    Of S bytes, a ring over n ranks sends 2 (n - 1) / n S from each rank to the next, and so out of each host,
    whose ranks are neighbours. A tree over hosts sends the same, whatever is inside them.
    """
    ranks = hosts * gpus
    return ((ranks - 1) / ranks) / ((hosts - 1) / hosts) if ring else 1.0


def harp_paths(spec: LabSpec) -> int:
    """Return the paths that HARP has on an interface of that speed, which a veth does not report."""
    caps = spec.cap_mbps if isinstance(spec.cap_mbps, tuple) else (spec.cap_mbps or 0.0,)
    return min(max(math.ceil(max(caps) / PATH_MBPS), 1), PATHS_MAX)


def scale_lab(spec: LabSpec, factor: float) -> LabSpec:
    """Return the lab with all its rates divided by a factor; queues hold the same bytes, for longer."""
    cap, flow_cap, queue_us = spec.cap_mbps, spec.flow_cap_mbps, spec.queue_us
    if isinstance(cap, tuple):
        cap = tuple(one / factor for one in cap)
    elif cap is not None:
        cap /= factor
    return dataclasses.replace(
        spec,
        cap_mbps=cap,
        flow_cap_mbps=None if flow_cap is None else flow_cap / factor,
        queue_ms=min(spec.queue_ms * factor, QUEUE_MAX_MS),
        queue_us=None if queue_us is None else min(queue_us * factor, QUEUE_MAX_MS * 1000),
    )
