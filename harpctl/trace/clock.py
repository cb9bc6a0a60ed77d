# SPDX-License-Identifier: Apache-2.0
"""Estimates how far one host's clock is ahead of another's, by packets that both ends have recorded.

A packet that leaves by one clock and arrives by the other shows the difference of the clocks, plus the time
that it took. The least of that in one direction is an upper bound, the least in the other direction a lower
one; the real difference lies between them, at most half of the lowest round trip from the middle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from harpctl.trace.rings import Event, Recording

SENDING = {"TX_DATA", "TX_AGAIN", "TX_DUPLICATE", "TX_PROBE"}
Marked = list[tuple[int, Event]]


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The second clock relative to the first."""

    ahead_ns: int
    error_ns: int  # it is ahead by so much more or less; -1: not known
    there: int  # packets that were compared: from the first to the second
    back: int

    def describe(self, first: str, second: str) -> str:
        """Return that in words."""
        ahead = f"{abs(self.ahead_ns) / 1e9:.9f} s {'ahead of' if self.ahead_ns >= 0 else 'behind'}"
        if self.error_ns < 0:
            return (
                f"The clock of {second} is assumed to be {ahead} that of {first}, by the hosts' time of day: "
                "no packet is in both recordings in both directions."
            )
        return (
            f"The clock of {second} is {ahead} that of {first}, within {self.error_ns / 1e3:.1f} us, by "
            f"{self.there} packets there and {self.back} back."
        )


class _Sent:
    """Times at which packets and acknowledgements of one side left."""

    def __init__(self, events: Marked) -> None:
        self._acks: dict[tuple[int, int, int], int] = {}
        self._runs: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for mark, event in events:
            if mark and event.kind.name in SENDING:
                self._runs[mark, event.path].append((event.number, event.count, event.at_ns))
            elif mark and event.kind.name == "TX_ACK":
                self._acks[mark, event.path, event.a] = event.at_ns
        for runs in self._runs.values():
            runs.sort()

    def packet_ns(self, mark: int, path: int, number: int) -> int | None:
        """Return when a packet left; None: that is not recorded."""
        runs = self._runs.get((mark, path), [])
        index = bisect_right(runs, number, key=lambda run: run[0]) - 1
        if index < 0 or number >= runs[index][0] + runs[index][1]:
            return None
        return runs[index][2]

    def ack_ns(self, mark: int, path: int, number: int) -> int | None:
        """Return when an acknowledgement left; None: that is not recorded."""
        return self._acks.get((mark, path, number))


def _clock_differences(sent: _Sent, events: Marked) -> Iterator[int]:
    """Yield by how much the clock of arrival shows more than that of sending."""
    for mark, event in events:
        name, at_ns, left_ns = event.kind.name, event.at_ns, None
        if name == "RX_ACK":
            left_ns = sent.ack_ns(mark, event.path, event.a)
        elif name == "TX_ACK":  # event.b: the time since the last packet that it acknowledges
            left_ns = sent.packet_ns(mark, event.path, event.number)
            at_ns -= event.b
        elif name == "RX_GAP":
            left_ns = sent.packet_ns(mark, event.path, event.number)
        if left_ns is not None:
            yield at_ns - left_ns


def clock_between(first: Recording, of_first: Marked, second: Recording, of_second: Marked) -> Clock:
    """Return how far the second one's clock is ahead."""
    there = list(_clock_differences(_Sent(of_first), of_second))
    back = list(_clock_differences(_Sent(of_second), of_first))
    if not there or not back:
        ahead_ns = first.unix_ns(0) - second.unix_ns(0)
        return Clock(ahead_ns=ahead_ns, error_ns=-1, there=len(there), back=len(back))
    highest, lowest = min(there), -min(back)
    return Clock(
        ahead_ns=(highest + lowest) // 2,
        error_ns=abs(highest - lowest) // 2,
        there=len(there),
        back=len(back),
    )
