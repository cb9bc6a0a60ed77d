# SPDX-License-Identifier: Apache-2.0
"""What takes the measured runs: it may make one again beside which the machine changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class CoreFigures:
    """The ranks' cores, the round trip of a cache line between the first two, and what followed from it."""

    cores: tuple[int, ...]
    least_ns: float  # of all readings
    beside_min_ns: float  # of the readings beside the runs that were kept
    beside_max_ns: float
    made_again: int  # runs
    kept_apart: int  # runs


class Watch:
    """Takes the runs that count; this one takes them as they come."""

    def take(self, run: Callable[[], T], is_wrong: Callable[[T], bool]) -> T:
        """Make a run, again if need be, and return its result; one with wrong data is always the last."""
        del is_wrong
        return run()

    def figures(self) -> CoreFigures | None:
        """Return what is known of the cores after the last run."""
        return None

    def notes(self) -> list[str]:
        """Return the notes below the table."""
        return []


UNWATCHED = Watch()
OpenWatch = Callable[[int], Watch]  # for that many runs
