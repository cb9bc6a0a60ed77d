# SPDX-License-Identifier: Apache-2.0
"""The progress of a release run: kept in a file, so that it can be stopped and goes on from there."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec

FAILURE_CHARS = 4000  # the end of a failure's text
COUNT_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a slice of an item: work in the item's unit, and what it saw besides."""

    done: int
    sums: dict[str, int] = {}
    most: dict[str, float] = {}


class Failure(msgspec.Struct):
    """A fault in a slice that began at `start`."""

    at: str
    start: int
    text: str


class Progress(msgspec.Struct):
    """The progress of an item."""

    done: int = 0
    seconds: float = 0.0
    sums: dict[str, int] = {}
    most: dict[str, float] = {}
    failures: list[Failure] = []
    unavailable: str = ""

    def add(self, outcome: Outcome, seconds: float) -> None:
        """Add a slice that passed."""
        self.done += outcome.done
        self.seconds += seconds
        self.unavailable = ""
        for name, count in outcome.sums.items():
            self.sums[name] = self.sums.get(name, 0) + count
        for name, value in outcome.most.items():
            self.most[name] = max(self.most.get(name, value), value)

    def fail(self, start: int, text: str, seconds: float) -> None:
        """Add a slice that failed: nothing that it did counts."""
        self.seconds += seconds
        self.unavailable = ""
        self.failures.append(Failure(time_now(), start, text[-FAILURE_CHARS:]))


class Record(msgspec.Struct):
    """The figures of one commit."""

    commit: str
    began: str
    changed: str
    items: dict[str, Progress] = {}

    def of(self, name: str) -> Progress:
        """Return the progress of an item."""
        return self.items.setdefault(name, Progress())


def time_now() -> str:
    """Return the time in UTC."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M")


def load_record(file: Path, commit: str, *, keep: bool) -> Record:
    """Read the record; another commit's is put aside, unless it is to be kept."""
    if not file.is_file():
        return Record(commit, time_now(), time_now())
    record = msgspec.json.decode(file.read_bytes(), type=Record)
    if record.commit == commit:
        return record
    if keep:
        record.commit = commit
        return record
    file.rename(file.with_name(f"{file.stem}-{record.commit}{file.suffix}"))
    return Record(commit, time_now(), time_now())


def save_record(file: Path, record: Record) -> None:
    """Write the record; a reader sees the old one or the new one."""
    record.changed = time_now()
    new = file.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    new.replace(file)


def count_text(count: float) -> str:
    """Write a count with three digits: 950, 12.3 k, 1.00 G."""
    for unit, letter in COUNT_UNITS:
        if count >= 0.9995 * unit:
            value = count / unit
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {letter}"
    return f"{count:g}"


def duration_text(seconds: float) -> str:
    """Write a duration: 45 s, 12 min, 3.4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _progress_text(progress: Progress) -> str:
    parts = [f"{count_text(count)} {name}" for name, count in progress.sums.items()]
    return "; ".join([*parts, *(f"{name} {value:.3g}" for name, value in progress.most.items())])


def _has_begun(progress: Progress) -> bool:
    return bool(progress.done or progress.failures or progress.unavailable)


def _row_of(item: Any, progress: Progress) -> str:
    """Return the table's row of an item that has begun, or can't."""
    failures = f"{len(progress.failures)} failures; " if progress.failures else ""
    seen = f"not run: {progress.unavailable}" if progress.unavailable else failures + _progress_text(progress)
    share = f"{min(100.0, 100 * progress.done / item.target):.3g} %"
    reached = f"{count_text(progress.done)} of {count_text(item.target)} {item.unit}, {share}"
    return f"| {item.what} | {reached} | {duration_text(progress.seconds)} | {seen} |"


def record_table(record: Record, items: Any) -> str:
    """Write the record as a Markdown table, one row for each item that has begun, and name the others."""
    pairs = [(item, record.of(item.name)) for item in items]
    begun = [(item, one) for item, one in pairs if _has_begun(one)]
    waiting = [item for item, one in pairs if not _has_begun(one)]
    failures = sum(len(one.failures) for _, one in pairs)
    lines = [
        f"Commit {record.commit}, from {record.began} to {record.changed} UTC; failures: {failures}.",
        "",
        "| item | reached | time | seen |",
        "|---|---|---|---|",
        *(_row_of(item, one) for item, one in begun),
    ]
    if waiting:
        lines += ["", "Not begun:", ""]
        lines += [f"- {item.what}: {count_text(item.target)} {item.unit}" for item in waiting]
    return "\n".join(lines) + "\n"
