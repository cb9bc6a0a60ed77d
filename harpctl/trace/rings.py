# SPDX-License-Identifier: Apache-2.0
"""Reads the flight recorder's rings out of a statistics file or a dump; see docs/reference/trace.md.

An engine may write while this reads: entries that it may have overwritten meanwhile are left out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import sys
from collections.abc import Iterator
from functools import cmp_to_key
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from harpctl.console import escape_unprintable
from harpctl.errors import ExitCode, HarpError
from harpctl.stats.layout import HEADER, TABLE, Page, layout_error, read_header, read_page, read_piece

RINGS = struct.Struct("=QIIIIIIIiiIqq96s")
HEAD = struct.Struct("=QII48x")
ENTRY = struct.Struct("=QQIIHHBBBB")
PARTS = ("FLOW", "RECOVERY", "STATE")
MEMORY_NAME = "/memfd:harp-trace"
MARGIN = 64  # entries that the writer may be ahead of its count
NO_PEER = 0xFFFF
SLOTS_MAX = 1 << 14  # the most slots of a part, as the plugin has them
RINGS_MAX = 64  # one for each entry of the table engine
RING_BYTES_MAX = 4 << 20
EVENTS_BYTES_MAX = 1 << 16  # the most bytes of the list of events
FIELD = re.compile(r"\{(\w+)(?::([^}]*))?\}")


class Kind(NamedTuple):
    """A line of the list of events that a file brings."""

    name: str
    part: str
    text: str


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event as an engine has recorded it."""

    at_ns: int  # CLOCK_MONOTONIC of its host
    kind: Kind
    part: int
    order: int
    engine: int  # its entry in the table engine
    peer: int  # entry in the table session; NO_PEER
    path: int
    number: int
    count: int
    stream: int
    a: int
    b: int

    def text(self) -> str:
        """Return the event in words."""
        return FIELD.sub(self._write_field, self.kind.text)

    def word(self, field: str) -> str:
        """Return a field as the event's text writes it."""
        uses = (match for match in FIELD.finditer(self.kind.text) if match[1] == field)
        return next((self._write_field(match) for match in uses), str(getattr(self, field)))

    def _write_field(self, match: re.Match[str]) -> str:
        value = getattr(self, match[1], "?")
        words = match[2].split("|") if match[2] else []
        return words[value] if isinstance(value, int) and value < len(words) else str(value)


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one file."""

    name: str
    page: Page
    why: str  # the reason why a dump was made
    dumped_unix_ns: int  # 0: the process was read itself
    cut: bool  # the file ends early
    events: list[Event]  # the events of all its engines, oldest first

    def unix_ns(self, at_ns: int) -> int:
        """Return the time of day of a point in time of the process."""
        return at_ns + self.page.created_unix_ns - self.page.created_ns


class Rings(NamedTuple):
    """Places of the rings in a file."""

    at: int
    ring_bytes: int
    ring_count: int
    first: int
    head_bytes: int
    entry_bytes: int
    events_at: int
    events_bytes: int
    heads_at: int
    fd: int
    reserved: int
    dumped_ns: int
    dumped_unix_ns: int
    why: bytes


def rings_of(file: BinaryIO, name: str) -> Rings:
    """Read where the rings are. Raises HarpError for a file without them, or with another layout."""
    _, tables = read_header(file, name)
    data = read_piece(file, HEADER.size + len(tables) * TABLE.size, RINGS.size)
    rings = Rings(*RINGS.unpack(data)) if len(data) == RINGS.size else None
    if rings is None or not rings.ring_bytes:
        raise layout_error(name, "it has no flight recorder")
    known = (rings.head_bytes, rings.entry_bytes) == (HEAD.size, ENTRY.size)
    if not known or rings.ring_count > RINGS_MAX or rings.ring_bytes > RING_BYTES_MAX:
        raise layout_error(name, "its flight recorder has another layout")
    return rings


def _read_kinds(file: BinaryIO, name: str, rings: Rings) -> list[Kind]:
    text = read_piece(file, rings.events_at, min(rings.events_bytes, EVENTS_BYTES_MAX)).decode("ascii", "replace")
    lines = [escape_unprintable(line).split(" ", 2) for line in text.splitlines()]
    if not lines or any(len(words) != 3 or words[1] not in PARTS for words in lines):
        raise layout_error(name, "its list of events is damaged")
    return [Kind(*words) for words in lines]


def _read_part(
    file: BinaryIO, start: int, head: bytes, *, living: bool, read_head: int
) -> tuple[list[tuple[int, ...]], bool]:
    """Return the entries of a part of a ring, oldest first, and whether some are cut off."""
    count, at, slots = HEAD.unpack(head)
    if not 0 < slots <= SLOTS_MAX:
        return [], True
    data = read_piece(file, start + at, slots * ENTRY.size)
    first = max(0, count - slots)
    if living:
        after = int.from_bytes(read_piece(file, read_head, 8), sys.byteorder)
        first = max(first, after + MARGIN - slots)
    whole = len(data) // ENTRY.size
    indices = [i % slots for i in range(first, count)]
    found = [ENTRY.unpack_from(data, i * ENTRY.size) for i in indices if i < whole]
    return found, len(found) < len(indices)


def _read_ring(
    file: BinaryIO, rings: Rings, index: int, kinds: list[Kind], *, living: bool
) -> tuple[list[Event], bool]:
    start = rings.at + index * rings.ring_bytes
    heads_at = start + rings.heads_at
    heads = read_piece(file, heads_at, len(PARTS) * HEAD.size)
    if living and not any(heads):  # there was no memory for it
        return [], False
    if len(heads) < len(PARTS) * HEAD.size:
        return [], True
    events: list[Event] = []
    cut = False
    for part in range(len(PARTS)):
        head = heads[part * HEAD.size : (part + 1) * HEAD.size]
        entries, is_cut = _read_part(file, start, head, living=living, read_head=heads_at + part * HEAD.size)
        cut |= is_cut
        for at_ns, number, a, b, peer, stream, event, path, count, order in entries:
            if not at_ns:  # it was being written when it was copied
                continue
            kind = kinds[event] if event < len(kinds) else Kind(f"EVENT_{event}", PARTS[part], "{a} {b}")
            engine = rings.first + index
            events.append(Event(at_ns, kind, part, order, engine, peer, path, number, count, stream, a, b))
    return events, cut


def _compare_events(one: Event, two: Event) -> int:
    """Compare events of one moment: those of FLOW keep the order in which they were written."""
    if one.engine != two.engine or one.part == two.part == 0:
        return 0
    ahead, behind = (two.order - one.order) & 255, (one.order - two.order) & 255
    if one.part and two.part:
        return 0 if not ahead else -1 if ahead < behind else 1
    if one.part:  # what is rare comes before the flow that has counted it
        return -1 if ahead < 128 else 1
    return 1 if behind < 128 else -1


def _in_order(events: list[Event]) -> list[Event]:
    """Sort by time, and those of one moment as they were written."""
    moments = groupby(sorted(events, key=lambda event: event.at_ns), key=lambda event: event.at_ns)
    found: list[Event] = []
    for _, group in moments:
        together = list(group)
        found += sorted(together, key=cmp_to_key(_compare_events)) if len(together) > 1 else together
    return found


@contextlib.contextmanager
def open_rings(file: BinaryIO, rings: Rings, pid: int, name: str) -> Iterator[BinaryIO]:
    """Open the file that holds the rings: the statistics file, or where that is on a disk, a file in memory."""
    if rings.fd < 0:
        yield file
        return
    path = f"/proc/{pid}/fd/{rings.fd}"
    try:
        if not str(Path(path).readlink()).startswith(MEMORY_NAME):  # another process has the number now
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        refused = isinstance(error, PermissionError)
        raise HarpError(
            f"The flight recorder of {name} is in the memory of process {pid}: {error.strerror}.",
            "Run it as root, or as the owner of the process."
            if refused
            else "It is there while the process runs; HARP_STATS_DIR on a tmpfs keeps it longer.",
            ExitCode.REFUSED if refused else ExitCode.MISSING,
        ) from None
    with os.fdopen(descriptor, "rb") as memory:
        yield memory


def read_recording(file: BinaryIO, name: str) -> Recording:
    """Read a statistics file or a dump; raises HarpError, which names it."""
    page = read_page(file, name)
    rings = rings_of(file, name)
    kinds = _read_kinds(file, name, rings)
    engines = {row["index"] for row in page.tables.get("engine", [])}
    events: list[Event] = []
    cut = False
    with open_rings(file, rings, page.pid, name) as source:
        for index in range(rings.ring_count):
            if rings.first + index not in engines:
                continue
            found, is_cut = _read_ring(source, rings, index, kinds, living=not rings.dumped_ns)
            events += found
            cut |= is_cut
    return Recording(
        name=name,
        page=page,
        why=escape_unprintable(rings.why.partition(b"\0")[0].decode("utf-8", "replace")),
        dumped_unix_ns=rings.dumped_unix_ns,
        cut=cut,
        events=_in_order(events),
    )
