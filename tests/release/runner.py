# SPDX-License-Identifier: Apache-2.0
"""Runs the items of a release run in slices, the one that is least far first, until told to stop."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harpctl.errors import HarpError
from tests.release.record import Outcome, Progress, Record, save_record

FAILURES_MAX = 3  # the failures of an item in one run, which then does it no more
STRIDE = 10**8  # from what failed to what is done next instead


class Unavailable(Exception):  # noqa: N818  it is no error
    """The exception for an item whose needs are not on this machine."""


class Item(Protocol):
    """Work that is done over and over, each time a little further."""

    @property
    def name(self) -> str:
        """Return what the record and the command line call it."""

    @property
    def what(self) -> str:
        """Return what the table calls it."""

    @property
    def unit(self) -> str:
        """Return the unit in which progress is counted."""

    @property
    def target(self) -> int:
        """Return how many units are wanted."""

    def prepare(self) -> None:
        """Build what it runs, where that is not built; its time does not count.

        Raises as `run` does.
        """

    def run(self, start: int, seconds: float) -> Outcome:
        """Go on from `start` for about so long.

        Raises Unavailable, or anything else where something is wrong.
        """


@dataclass
class Runner:
    """A run; `file` has the record, which is written after each slice."""

    items: Sequence[Item]
    record: Record
    file: Path
    slice_s: float
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def run(self, seconds: float | None) -> bool:
        """Do slices until all items are done, or for so long; return whether none has failed, ever."""
        until_s = None if seconds is None else self.clock() + seconds
        failed: dict[str, int] = {}
        left_out: set[str] = set()
        while item := self._next_item(left_out):
            slice_s = self.slice_s if until_s is None else min(self.slice_s, until_s - self.clock())
            if slice_s <= 0:
                break
            progress = self.record.of(item.name)
            self._run_slice(item, progress, slice_s)
            save_record(self.file, self.record)
            failed[item.name] = failed.get(item.name, 0) + (self._last == "failed")
            if self._last == "unavailable" or failed[item.name] == FAILURES_MAX:
                left_out.add(item.name)
        return not any(progress.failures for progress in self.record.items.values())

    def _next_item(self, left_out: set[str]) -> Item | None:
        """Return the item that is least far, in time where two are equally far."""

        def order(item: Item) -> tuple[float, float]:
            progress = self.record.of(item.name)
            return progress.done / item.target, progress.seconds

        open_items = [
            item
            for item in self.items
            if item.name not in left_out and self.record.of(item.name).done < item.target
        ]
        return min(open_items, key=order, default=None)

    def _run_slice(self, item: Item, progress: Progress, slice_s: float) -> None:
        began_s, start = self.clock(), progress.done + STRIDE * len(progress.failures)
        try:
            item.prepare()
            began_s = self.clock()
            outcome = item.run(start, slice_s)
        except Unavailable as reason:
            self._last = "unavailable"
            progress.unavailable = str(reason)
            self.tell(f"{item.name}: not run: {reason}")
        except HarpError as error:
            self._record_failure(item, progress, start, f"{error.message} {error.hint}", began_s)
        except Exception:  # noqa: BLE001  a failure of any kind is what is looked for
            self._record_failure(item, progress, start, traceback.format_exc(), began_s)
        else:
            self._last = "passed"
            progress.add(outcome, self.clock() - began_s)
            self.tell(f"{item.name}: {progress.done} of {item.target} {item.unit}")

    def _record_failure(self, item: Item, progress: Progress, start: int, text: str, began_s: float) -> None:
        self._last = "failed"
        progress.fail(start, text, self.clock() - began_s)
        self.tell(f"{item.name}: FAILED\n{progress.failures[-1].text}")

    _last = ""
