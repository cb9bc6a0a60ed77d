# SPDX-License-Identifier: Apache-2.0
"""`python -m lightcc.estimate`: what each setting would make of a step, by bytes that leave a host. No torch.

The model: step = a step on one host + bytes that leave a host / rate. Nothing overlaps, and the rate is that
of all flows of a host together; it is known best from one measured step of the same job.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

FP32, BF16 = 4, 2  # bytes
INDEX_AND_VALUE = 8
INT8 = 1 + 4 / 256


def resnet50() -> list[int]:
    """Return the numbers of elements of ResNet50's gradients."""
    found = [64 * 3 * 49, 64, 64]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            found += [channels * width, width, width, width * width * 9, width, width]
            found += [width * width * 4, 4 * width, 4 * width]
            if block == 0:
                found += [channels * width * 4, 4 * width, 4 * width]
            channels = 4 * width
    return [*found, 2048 * 1000, 1000]


@dataclass(frozen=True)
class Job:
    """A model's gradients (elements of each), the hosts and GPUs of each, and the settings of top-k."""

    sizes: Sequence[int]
    hosts: int
    gpus: int
    ratio: float = 0.01
    threshold_bytes: int = 1 << 20

    @property
    def ring_bytes(self) -> float:
        """Return what leaves a host in a plain all-reduce by a ring."""
        ranks = self.hosts * self.gpus
        return 2 * (ranks - 1) / ranks * FP32 * sum(self.sizes)

    def rows(self) -> dict[str, float]:
        """Return the bytes that leave a host in a step, by setting."""
        total = sum(self.sizes)
        large = sum(size for size in self.sizes if FP32 * size >= self.threshold_bytes)
        share = 2 * (self.hosts - 1) / self.hosts
        chosen = self.ratio * large * INDEX_AND_VALUE
        small = share * FP32 * (total - large)
        return {
            "ring": self.ring_bytes,
            "2D": share * FP32 * total,
            "2D bf16": share * BF16 * total,
            "2D int8": share * INT8 * total,
            "2D, top-k of all ranks": small + (self.hosts - 1) * self.gpus * chosen,
            "2D, top-k between hosts": small + (self.hosts - 1) * chosen,
        }


def step_s(sent_bytes: float, rate_gbit: float, one_host_s: float) -> float:
    """Return the time of a step whose bytes leave a host at that rate."""
    return one_host_s + 8 * sent_bytes / (rate_gbit * 1e9)


def rate_gbit(sent_bytes: float, measured_s: float, one_host_s: float) -> float:
    """Return the rate at which a measured step sent its bytes, in Gbit/s."""
    return 8 * sent_bytes / (measured_s - one_host_s) / 1e9


def table(job: Job, gbit: float, one_host_s: float) -> list[str]:
    """Return the lines of the table."""
    plain = step_s(job.ring_bytes, gbit, one_host_s)
    lines = [f"{'setting':<26} {'MB a host':>10} {'step ms':>9} {'speed-up':>9}"]
    for name, sent in job.rows().items():
        took = step_s(sent, gbit, one_host_s)
        lines.append(f"{name:<26} {sent / 1e6:>10.2f} {1e3 * took:>9.1f} {plain / took:>9.2f}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of a job; return the exit status."""
    parser = argparse.ArgumentParser(prog="lightcc.estimate", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--params", required=True, help="resnet50, or a number of parameters")
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=8, help="of each host (8)")
    parser.add_argument("--step-ms", type=float, required=True, help="a step of one host alone")
    parser.add_argument("--gbit", type=float, help="Gbit/s that leave a host")
    parser.add_argument("--measured-ms", type=float, help="instead of --gbit: a step of the job with NCCL's ring")
    parser.add_argument("--ratio", type=float, default=0.01, help="LIGHT_TOPK_RATIO (0.01)")
    parser.add_argument("--threshold", type=int, default=1 << 20, help="LIGHT_TOPK_THRESHOLD (1048576)")
    given = parser.parse_args(argv)
    if given.params != "resnet50" and not given.params.isdecimal():
        parser.error("--params: resnet50, or a number of parameters")
    if given.hosts < 2 or given.gpus < 1 or given.step_ms <= 0 or not 0 < given.ratio <= 1:
        parser.error("needs two hosts or more, a GPU or more, a step above 0 ms and a ratio above 0 and at most 1")
    if (given.gbit is None) == (given.measured_ms is None):
        parser.error("give one of --gbit and --measured-ms")
    sizes = resnet50() if given.params == "resnet50" else [int(given.params)]
    job = Job(sizes, given.hosts, given.gpus, given.ratio, given.threshold)
    one_host_s = given.step_ms / 1e3
    if given.gbit is None:
        if given.measured_ms <= given.step_ms:
            parser.error("--measured-ms: not above --step-ms, so that the network costs nothing")
        given.gbit = rate_gbit(job.ring_bytes, given.measured_ms / 1e3, one_host_s)
    if given.gbit <= 0:
        parser.error("--gbit: must be above 0")
    print("\n".join(table(job, given.gbit, one_host_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
