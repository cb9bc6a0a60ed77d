# SPDX-License-Identifier: Apache-2.0
"""Pairs the hosts into rounds: each pair measures once, all hosts at the same time.

The circle method: one host stays, the others move on by one place from round to round. N hosts take N-1
rounds of N/2 pairs, or N rounds where N is odd and one host pauses in each.
"""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[str, str]


def plan_rounds(hosts: Sequence[str]) -> list[list[Pair]]:
    """Return the rounds, each a list of pairs in which no host is twice."""
    circle: list[str | None] = [*hosts, *([None] * (len(hosts) % 2))]
    found = []
    for _round in range(len(circle) - 1):
        ends = zip(circle[: len(circle) // 2], reversed(circle), strict=False)
        found.append([(a, b) for a, b in ends if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found
