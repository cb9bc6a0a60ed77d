# SPDX-License-Identifier: Apache-2.0
"""The time that exchanges between hosts add to a step, where columns of ranks take turns on one link.

Ranks and link are the two stages of a pipeline whose items are the columns: while the link carries what one
column exchanges, the ranks of another still sum their row or code. A stage is never idle while an item waits
for it, so the total is that of the longest stage and of what fills it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

Exchange = tuple[float, float]  # seconds after the column's exchange before (the first: at all), and bytes
Spans = Sequence[tuple[float, float, float]]  # the exchanges of a rank: begin and end in seconds, and bytes


def last_end_s(columns: Sequence[Sequence[Exchange]], bytes_s: float) -> float:
    """Return when the last exchange ends, if the link carries them one by one as columns become ready."""
    waiting = [(column[0][0], place, 0) for place, column in enumerate(columns)]
    heapq.heapify(waiting)
    free = -math.inf
    while waiting:
        ready, place, number = heapq.heappop(waiting)
        column = columns[place]
        free = max(free, ready) + column[number][1] / bytes_s
        if number + 1 < len(column):
            heapq.heappush(waiting, (free + column[number + 1][0], place, number + 1))
    return free


def added_s(columns: Sequence[Sequence[Exchange]], bytes_s: float) -> float:
    """Return how much later the last exchange ends than on a link that takes no time."""
    return last_end_s(columns, bytes_s) - last_end_s(columns, math.inf)


def column_of(ranks: Sequence[Spans]) -> list[Exchange]:
    """Return the exchanges of a column from those of its ranks, which begin when the last of them is ready."""
    exchanges: list[Exchange] = []
    before = [0.0] * len(ranks)
    for spans in zip(*ranks, strict=True):
        pause = max(begin - end for (begin, _end, _bytes), end in zip(spans, before, strict=True))
        exchanges.append((pause, spans[0][2]))
        before = [end for _begin, end, _bytes in spans]
    return exchanges
