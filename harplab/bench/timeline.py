# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a run by the clock: stalls, rates before and after each event, fairness. Pure functions.

Times are seconds since the start, rates Gbit/s, samples bytes per interval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

SMOOTH_S = 0.05  # over which a rate is taken when it is asked whether it is back
BACK_SHARE = 0.9  # the share of a rate that counts as having reached it
STEADY_SHARE = 0.5  # the later part of a phase, whose rate is called the phase's


@dataclasses.dataclass(frozen=True)
class Samples:
    """Bytes received in each interval since the start."""

    interval_s: float
    bytes: Sequence[int]

    def seconds(self) -> float:
        """Return the length of the run."""
        return len(self.bytes) * self.interval_s

    def index(self, at_s: float) -> int:
        """Return the sample that holds a time, at most the one behind the last."""
        return min(max(int(at_s / self.interval_s + 1e-9), 0), len(self.bytes))

    def rate_gbps(self, from_s: float, to_s: float) -> float:
        """Return the mean rate between two times."""
        first, last = self.index(from_s), self.index(to_s)
        if last <= first:
            return 0.0
        return sum(self.bytes[first:last]) * 8 / 1e9 / ((last - first) * self.interval_s)

    def merged(self, interval_s: float) -> Samples:
        """Join samples into longer ones, for a picture."""
        width = max(round(interval_s / self.interval_s), 1)
        joined = [sum(self.bytes[at : at + width]) for at in range(0, len(self.bytes) - width + 1, width)]
        return Samples(width * self.interval_s, joined)


@dataclasses.dataclass(frozen=True)
class Phase:
    """The time from one event to the next, and how the run fared in it."""

    name: str
    from_s: float
    to_s: float
    rate_gbps: float  # the rate of its later part
    stall_ms: float  # the longest time without a byte that touches it
    settled_ms: float | None  # until it first ran at its own later rate; None: it ran at none
    full_ms: float | None  # until it first ran at the rate before all events; None: it did not stay there


def cut_into_phases(samples: Samples, events: Sequence[tuple[float, str]]) -> list[Phase]:
    """Cut a run at its events, which are in order."""
    within = [(at_s, name) for at_s, name in events if at_s < samples.seconds()]
    marks = [(0.0, "before" if within else "all"), *within]
    ends = [at_s for at_s, _ in marks[1:]] + [samples.seconds()]
    cut: list[Phase] = []
    for (from_s, name), to_s in zip(marks, ends, strict=True):
        rate = samples.rate_gbps(from_s + (to_s - from_s) * (1 - STEADY_SHARE), to_s)
        full = cut[0].rate_gbps if cut else rate
        cut.append(
            Phase(
                name,
                from_s,
                to_s,
                rate,
                longest_stall_ms(samples, from_s, to_s),
                reached_ms(samples, from_s, to_s, rate),
                reached_ms(samples, from_s, to_s, full) if rate >= full * BACK_SHARE else None,
            )
        )
    return cut


def longest_stall_ms(samples: Samples, from_s: float, to_s: float) -> float:
    """Return the longest run of empty samples of which at least one lies between two times."""
    longest = run = 0
    first, last = samples.index(from_s), samples.index(to_s)
    for at, got in enumerate(samples.bytes):
        run = run + 1 if got == 0 else 0
        if at < first:
            continue
        if at >= last and (run == 0 or at - run >= last - 1):
            break
        longest = max(longest, run)
    return longest * samples.interval_s * 1000


def reached_ms(samples: Samples, from_s: float, to_s: float, rate_gbps: float) -> float | None:
    """Return how long after `from_s` the rate, taken over SMOOTH_S, was first BACK_SHARE of a rate."""
    if rate_gbps <= 0:
        return None
    first, last = samples.index(from_s), samples.index(to_s)
    width = max(round(SMOOTH_S / samples.interval_s), 1)
    wanted = rate_gbps * BACK_SHARE * 1e9 / 8 * width * samples.interval_s
    have = sum(samples.bytes[first : first + width])
    for at in range(first, last - width + 1):
        if have >= wanted:
            return (at - first) * samples.interval_s * 1000
        have += (samples.bytes[at + width] if at + width < len(samples.bytes) else 0) - samples.bytes[at]
    return None


def jain_index(figures: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 where all are equal, 1/n where one has everything; 1 of nothing."""
    squares = sum(figure * figure for figure in figures)
    return sum(figures) ** 2 / (len(figures) * squares) if squares else 1.0
