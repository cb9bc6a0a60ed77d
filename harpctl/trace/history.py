# SPDX-License-Identifier: Apache-2.0
"""The events of one or two recordings on one clock, with their sessions, and what was lost on each path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from harpctl.stats.layout import Row, Value, rows_by
from harpctl.stats.sample import number_of
from harpctl.trace.clock import SENDING, Clock, clock_between
from harpctl.trace.rings import NO_PEER, Event, Recording


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as its recording names it."""

    mark: int  # the same at both ends; 0: not known
    peer: str
    paths: dict[int, str]  # "eni0 to 10.0.0.2:1234", by index


class HistoryEvent(NamedTuple):
    """An event on the common clock."""

    at_ns: int  # the time on the first recording's host
    side: int  # the recording that it is of
    mark: int  # the mark of its session; 0: none
    event: Event


class PathCount(msgspec.Struct, kw_only=True):
    """Counts of one path of a session, as one side sent it."""

    side: int
    mark: int
    path: int
    name: str
    sent: int = 0
    resent: int = 0
    lost: int = 0
    late: int = 0
    gaps: int = 0  # the gaps that the other end saw
    timeouts: int = 0
    rtt_us: int = 0  # when the window fell last


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A recording, and its sessions by mark."""

    recording: Recording
    sessions: dict[int, Session]
    events: list[tuple[int, Event]]  # with the marks of their sessions

    def title(self) -> str:
        """Return whose it is."""
        return f"{self.recording.page.host}:{self.recording.page.pid}"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One or two sides on one clock."""

    sides: tuple[Side, ...]
    clock: Clock | None  # the clock of the second side against the first
    events: list[HistoryEvent]

    def name_of(self, entry: HistoryEvent) -> str:
        """Return whose session an event is of."""
        side = self.sides[entry.side]
        session = side.sessions.get(entry.mark)
        return f"{side.title()} > {session.peer}" if session else side.title()

    def text_of(self, entry: HistoryEvent) -> str:
        """Return an event in words, with its path named."""
        session = self.sides[entry.side].sessions.get(entry.mark)
        text = entry.event.text()
        name = session.paths.get(entry.event.path, "") if session else ""
        start = f"path {entry.event.path} "
        return (
            f"path {entry.event.path} ({name}) {text.removeprefix(start)}"
            if name and text.startswith(start)
            else text
        )


def _path_names(enis: dict[Value, Value], paths: list[Row], row: Row) -> dict[int, str]:
    def name(path: Row) -> str:
        return f"{enis.get(path.get('eni', -1), '?')} to {path.get('address', '?')}"

    first = number_of(row, "path_first")
    return {number_of(path, "index") - first: name(path) for path in paths}


def _mark_events(events: Iterable[Event], rows: dict[int, Row]) -> Iterator[tuple[int, Event]]:
    """Yield each event with the mark of its session: an entry of the table may have had several in turn."""
    events = list(events)
    opened = {event.peer for event in events if event.kind.name == "SESSION_OPEN"}
    now = {index: number_of(row, "mark") for index, row in rows.items() if index not in opened}
    for event in events:
        if event.kind.name == "SESSION_OPEN":
            now[event.peer] = event.number
        yield (0 if event.peer == NO_PEER else now.get(event.peer, 0)), event


def side_of(recording: Recording) -> Side:
    """Return a recording with its sessions."""
    tables = recording.page.tables
    rows = {number_of(row, "index"): row for row in tables.get("session", [])}
    enis = {eni["index"]: eni.get("name", "?") for eni in tables.get("eni", [])}
    paths = rows_by(tables.get("path", []), "session")
    sessions = {
        number_of(row, "mark"): Session(
            mark=number_of(row, "mark"),
            peer=f"{row.get('host', '?')}:{row.get('peer_pid', '?')}",
            paths=_path_names(enis, paths.get(row["index"], []), row),
        )
        for row in rows.values()
    }
    return Side(recording=recording, sessions=sessions, events=list(_mark_events(recording.events, rows)))


def history_of(recordings: list[Recording]) -> History:
    """Merge one or two recordings."""
    sides = tuple(side_of(recording) for recording in recordings)
    clock = None
    ahead_ns = [0] * len(sides)
    if len(sides) > 1:
        clock = clock_between(sides[0].recording, sides[0].events, sides[1].recording, sides[1].events)
        ahead_ns[1] = clock.ahead_ns
    events = [
        HistoryEvent(event.at_ns - ahead_ns[number], number, mark, event)
        for number, side in enumerate(sides)
        for mark, event in side.events
    ]
    events.sort(key=lambda entry: entry.at_ns)  # stable: each side keeps its order
    return History(sides=sides, clock=clock, events=events)


def counts_of(history: History) -> list[PathCount]:
    """Return what was recorded of each path, what lost most first."""
    found: dict[tuple[int, int, int], PathCount] = {}

    def count(side: int, mark: int, path: int) -> PathCount:
        session = history.sides[side].sessions.get(mark)
        name = session.paths.get(path, "") if session else ""
        one = PathCount(side=side, mark=mark, path=path, name=name)
        return found.setdefault((side, mark, path), one)

    gaps: dict[tuple[int, int, int], int] = defaultdict(int)
    for entry in history.events:
        event, name = entry.event, entry.event.kind.name
        if name == "RX_GAP":
            gaps[entry.side, entry.mark, event.path] += 1
            continue
        if name not in {*SENDING, "LOST", "SPURIOUS", "PTO", "WINDOW"}:
            continue
        one = count(entry.side, entry.mark, event.path)
        one.sent += event.count if name in SENDING else 0
        one.resent += event.count if name == "TX_AGAIN" else 0
        one.lost += event.count if name == "LOST" else 0
        one.late += event.count if name == "SPURIOUS" else 0
        one.timeouts += name == "PTO"
        one.rtt_us = event.b if name == "WINDOW" else one.rtt_us
    for (side, mark, path), seen in gaps.items():
        if len(history.sides) > 1 and (1 - side, mark, path) in found:
            found[1 - side, mark, path].gaps = seen
    return sorted(found.values(), key=lambda one: (-(one.lost - one.late), -one.timeouts, -one.sent))


def describe_losses(history: History) -> Iterator[str]:
    """Yield a sentence for each path that lost packets or stopped."""
    for one in counts_of(history):
        if not one.lost and not one.timeouts:
            continue
        side = history.sides[one.side]
        session = side.sessions.get(one.mark)
        to = session.peer if session else "a peer that is not known any more"
        path = f"path {one.path} ({one.name})" if one.name else f"path {one.path}"
        text = f"{side.title()} to {to}, {path}: {one.lost} packets were found lost"
        text += f", {one.late} of them had only been late" if one.late else ""
        text += f", {one.resent} sent again" if one.resent else ""
        text += f", {one.timeouts} probe timeouts" if one.timeouts else ""
        if one.gaps:
            text += f"; the other end saw {one.gaps} gaps"
        yield f"{text}."
