# SPDX-License-Identifier: Apache-2.0
"""Reads from the statistics files what the processes of a job have moved by HARP.

The files describe themselves (docs/reference/statistics.md, plugin/src/host/stats_layout.h). A
process removes its own when it ends, so they are read all the time; counters of a session never decrease
while it has the same id.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

MAGIC = b"HARPSTAT"
FORMAT = 1
HEADER = struct.Struct("=8sIIqqqqqqII32s64sII")
TABLE = struct.Struct("=QIIII")
HEAD = struct.Struct("=Qq")  # an entry's head: sequence, id
LINE = re.compile(r"([CGT]) (\w+) (\S+)")
FILE_BYTES_MAX = 64 << 20
TRIES = 5  # readings of an entry that is being written


class Fields(NamedTuple):
    """Places of the fields in a table's entries: offset and bytes of each by its name."""

    places: Dict[str, Tuple[int, int]]

    def number(self, entry: bytes, name: str) -> int:
        """Return a number; 0 where the file does not have it."""
        at, size = self.places.get(name, (0, 0))
        return int.from_bytes(entry[at : at + size], sys.byteorder, signed=True)

    def text(self, entry: bytes, name: str) -> str:
        """Return a text, of which every character can be printed."""
        at, size = self.places.get(name, (0, 0))
        text = entry[at : at + size].split(b"\0")[0].decode("utf-8", "replace")
        return "".join(c if c.isprintable() else "?" for c in text)


def fields_of(schema: str) -> List[Tuple[str, Fields]]:
    """Return the tables that a schema describes, in order."""
    tables: List[Tuple[str, Fields]] = []
    at = HEAD.size
    for line in schema.splitlines():
        if line.startswith("table "):
            tables.append((line.split()[1], Fields({})))
            at = HEAD.size
        elif tables and (match := LINE.match(line)):
            size = int(match[3]) if match[1] == "T" else 8
            tables[-1][1].places[match[2]] = (at, size)
            at += size
    return tables


class StatisticsFile:
    """A statistics file, which stays open: it can be read after its process has removed it."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises OSError or ValueError where it is none."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        head = os.pread(self._fd, HEADER.size, 0)
        values = HEADER.unpack(head) if len(head) == HEADER.size else (b"", 0, 0, 0)
        if values[:2] != (MAGIC, FORMAT) or os.fstat(self._fd).st_size > FILE_BYTES_MAX:
            self.close()
            raise ValueError("no statistics file")
        schema = os.pread(self._fd, min(values[10], FILE_BYTES_MAX), values[9])
        self._tables = {
            name: (HEADER.size + index * TABLE.size, fields)
            for index, (name, fields) in enumerate(fields_of(schema.decode("utf-8", "replace")))
        }

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def entries(self, table: str) -> Iterator[Tuple[int, int, bytes, Fields]]:
        """Read the entries of a table that were ever in use: number, id (0: no more), bytes and fields."""
        place, fields = self._tables.get(table, (0, Fields({})))
        if not place:
            return
        at, size, _most, used, _missing = TABLE.unpack(os.pread(self._fd, TABLE.size, place))
        for number in range(min(used, FILE_BYTES_MAX // max(size, HEAD.size))):
            entry = self._read_stable(size, at + number * size)
            if entry:
                yield number, HEAD.unpack_from(entry)[1], entry, fields

    def _read_stable(self, size: int, at: int) -> bytes:
        """Return a copy of an entry that nobody wrote meanwhile; empty where none was had."""
        for _try in range(TRIES):
            first, second = os.pread(self._fd, size, at), os.pread(self._fd, size, at)
            if len(first) < max(size, HEAD.size):
                return b""
            if first == second and HEAD.unpack_from(first)[0] % 2 == 0:
                return first
        return b""


File = str  # its name, which has process id and start time


class Moved:
    """Adds up what the processes of one job have moved."""

    def __init__(self, directories: List[Path], marker: bytes) -> None:
        self._directories = directories
        self._marker = marker  # in the environment of each process of the job
        self._files: Dict[File, StatisticsFile] = {}
        self._others: Set[File] = set()  # the files of other jobs
        self._ids: Dict[Tuple[File, int], int] = {}  # the id of the session that had an entry last
        self._of: Dict[Tuple[File, int, int], Tuple[int, int]] = {}  # sent and received bytes of each session
        self.hosts: Set[str] = set()
        self.interfaces: Set[str] = set()

    @property
    def processes(self) -> int:
        """Return how many processes have initialised HARP."""
        return len(self._files)

    @property
    def sent_bytes(self) -> int:
        """Return the payload that the peers have acknowledged."""
        return sum(sent for sent, _received in self._of.values())

    @property
    def received_bytes(self) -> int:
        """Return the payload that was received."""
        return sum(received for _sent, received in self._of.values())

    def look(self) -> None:
        """Read what is there now, and the last words of those that have ended."""
        for directory in self._directories:
            with contextlib.suppress(OSError):
                for path in directory.glob("*.stats"):
                    self._open_file(path)
        for name, file in self._files.items():
            self._read_counters(name, file)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _open_file(self, path: Path) -> None:
        """Open a file that is the job's and not open yet. One that is not complete yet is tried again.

        Its name begins with the process id. Thousands may be left of processes that were killed.
        """
        if path.name in self._files or path.name in self._others:
            return
        if not self._is_ours(path.name.partition("-")[0]):
            self._others.add(path.name)
            return
        with contextlib.suppress(OSError, ValueError):
            self._files[path.name] = StatisticsFile(path)

    def _is_ours(self, pid: str) -> bool:
        try:
            return self._marker in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False  # another user's, or it has ended

    def _read_counters(self, name: File, file: StatisticsFile) -> None:
        for number, id_, entry, fields in file.entries("session"):
            own = id_ or self._ids.get((name, number), 0)  # the id of the session that has ended
            self._ids[name, number] = own
            moved = (fields.number(entry, "sent_bytes"), fields.number(entry, "received_bytes"))
            self._of[name, number, own] = moved
            self.hosts.add(fields.text(entry, "host"))
        for _number, _id, entry, fields in file.entries("eni"):
            if fields.number(entry, "tx_bytes") or fields.number(entry, "rx_bytes"):
                self.interfaces.add(fields.text(entry, "name"))
