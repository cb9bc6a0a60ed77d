# SPDX-License-Identifier: Apache-2.0
"""Reports the cost of a model's gradients between hosts: bytes, and the time of the hops over columns."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable

import torch

EVENTS_MAX = 1000  # hops whose time is kept on CUDA: the last ones


class Report:
    """Counts the hops of one rank; lanes call it from their threads."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self.steps = 0
        self.hops = 0
        self.host_bytes = 0  # the bytes that leave this rank's host, by all its ranks
        self.ring_bytes = 0  # what they would be in one ring of all ranks, uncompressed
        self._spent_s = 0.0
        self._events: collections.deque[tuple[torch.cuda.Event, torch.cuda.Event]]
        self._events = collections.deque(maxlen=EVENTS_MAX)

    def timed(self, hop: Callable[[], torch.Tensor], host_bytes: int, ring_bytes: int) -> torch.Tensor:
        """Run a hop and count it; return its tensor."""
        begin = self._now()
        total = hop()
        end = self._now()
        with self._lock:
            self.hops += 1
            self.host_bytes += host_bytes
            self.ring_bytes += ring_bytes
            if isinstance(begin, float):
                self._spent_s += end - begin
            else:
                self._events.append((begin, end))
        return total

    def stats(self) -> dict[str, float]:
        """Return steps, hops, bytes that left the host, those of a plain ring, and ms of a hop.

        On CUDA it waits for the hops of all streams, and the time is the mean of at most EVENTS_MAX hops.
        """
        with self._lock:
            spent_s, timed = self._spent_s, self.hops
            if self._events:
                for _begin, end in self._events:  # the last one recorded may be of a stream that ends first
                    end.synchronize()
                spent_s = sum(begin.elapsed_time(end) for begin, end in self._events) / 1e3
                timed = len(self._events)
            return {
                "steps": self.steps,
                "hops": self.hops,
                "host_bytes": self.host_bytes,
                "ring_bytes": self.ring_bytes,
                "hop_ms": 1e3 * spent_s / timed if timed else 0.0,
            }

    def line(self) -> str:
        """Return the statistics as the line that ends a job."""
        got = self.stats()
        steps, ring = max(1, self.steps), max(1, self.ring_bytes)
        return (
            f"lightcc: {self.steps} steps; a host sent {got['host_bytes'] / steps / 1e6:.3f} MB a step, "
            f"{got['host_bytes'] / ring:.3f} of a ring's {got['ring_bytes'] / steps / 1e6:.3f} MB; "
            f"{self.hops} hops of {got['hop_ms']:.2f} ms"
        )

    def _now(self) -> float | torch.cuda.Event:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
