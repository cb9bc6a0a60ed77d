# SPDX-License-Identifier: Apache-2.0
"""Reads a statistics file, as plugin/src/host/stats_layout.h lays it out; see docs/reference/statistics.md.

The file describes its own fields, so that this reads the files of other versions, too. An entry may be
written while it is read: it is accepted when two copies of it are equal, with an even sequence.

Any user may write such a file, and root reads it: sizes are bounded before anything is read, texts are
printable, and waiting for entries that are being written takes a bounded time for all of them together.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterable, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from harpctl.console import escape_unprintable
from harpctl.errors import ExitCode, HarpError

MAGIC = b"HARPSTAT"
FORMAT = 1
HEADER = struct.Struct("=8sIIqqqqqqII32s64sII")
TABLE = struct.Struct("=QIIII")
HEAD = struct.Struct("=Qq")  # an entry's head: sequence, id
NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)  # the names of tables and fields
OWN_NAMES = ("index", "id")  # names of a row's own, which no field may have
TRIES = 20  # readings of entries that are being written
PAUSE_S = 0.0005
# About twice what the plugin's tables can hold, all of them together.
TABLES_MAX = 32
ENTRIES_MAX = 1 << 15
PAGE_BYTES_MAX = 8 << 20
SCHEMA_BYTES_MAX = 1 << 16
OFFSET_MAX = 1 << 62  # beyond that pread fails

Value = int | str
Row = dict[str, Value]  # an entry: its fields, and "index" and "id"


def rows_by(rows: Iterable[Row], key: str) -> dict[Value, list[Row]]:
    """Return rows by the value of a field."""
    found: dict[Value, list[Row]] = {}
    for row in rows:
        found.setdefault(row.get(key, ""), []).append(row)
    return found


class Field(NamedTuple):
    """A line of the schema."""

    kind: str  # "C" counter, "G" gauge, "T" text
    name: str
    unit: str  # the unit of a number; "" without
    text: str  # what it means
    text_bytes: int = 0


class Table(NamedTuple):
    """A table of the file."""

    name: str
    fields: tuple[Field, ...]
    at: int
    entry_bytes: int
    used: int
    missing: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file at one moment."""

    pid: int
    start_ticks: int
    pid_namespace: int
    created_unix_ns: int
    created_ns: int
    updated_ns: int
    version: str
    host: str
    missing: dict[str, int]  # entries that had no room, by table
    torn: int  # entries whose writer died in the middle
    tables: dict[str, list[Row]]
    bytes: int  # the bytes of the entries in use


def layout_error(name: str, why: str) -> HarpError:
    """Return the error of a file that cannot be understood."""
    return HarpError(
        f"{name} is no statistics file that can be read here: {why}.",
        "Use the harpctl that belongs to the plugin of that process, or remove the file.",
        ExitCode.WRONG_DATA,
    )


def read_piece(file: BinaryIO, at: int, count: int) -> bytes:
    """Read a part of a file. Beyond its end the result is shorter, or empty."""
    return os.pread(file.fileno(), count, at) if 0 <= at <= OFFSET_MAX else b""


def parse_schema(text: str) -> dict[str, tuple[Field, ...]]:
    """Read the fields of each table. Raises ValueError for what is no schema."""
    tables: dict[str, list[Field]] = {}
    fields: list[Field] | None = None
    for line in text.splitlines():
        words = line.split(" ", 3)
        if len(words) < 2 or not NAME.fullmatch(words[1]) or words[1] in OWN_NAMES:
            raise ValueError(line)
        if words[0] == "table" and len(words) == 2:
            fields = tables.setdefault(words[1], [])
        elif fields is None or len(words) != 4 or words[0] not in {"C", "G", "T"}:
            raise ValueError(line)
        elif words[0] == "T":
            fields.append(Field("T", words[1], "", escape_unprintable(words[3]), _text_bytes(words[2])))
        else:
            unit = escape_unprintable(words[2]).removeprefix("-")
            fields.append(Field(words[0], words[1], unit, escape_unprintable(words[3])))
    return {name: tuple(found) for name, found in tables.items()}


def _text_bytes(word: str) -> int:
    count = int(word) if word.isdecimal() and len(word) <= len(str(PAGE_BYTES_MAX)) else 0
    if not 0 < count <= PAGE_BYTES_MAX:
        raise ValueError(word)
    return count


def _decode_text(data: bytes) -> str:
    return escape_unprintable(data.partition(b"\0")[0].decode("utf-8", "replace"))


def _entry_pattern(fields: tuple[Field, ...]) -> struct.Struct:
    return struct.Struct("=16x" + "".join(f"{f.text_bytes}s" if f.kind == "T" else "q" for f in fields))


def _read_tables(file: BinaryIO, name: str, header: bytes, schema_at: int, schema_bytes: int) -> list[Table]:
    count = HEADER.unpack_from(header)[13]
    try:
        schema = parse_schema(read_piece(file, schema_at, min(schema_bytes, SCHEMA_BYTES_MAX)).decode("ascii"))
    except ValueError:
        raise layout_error(name, "its schema is damaged") from None
    if count != len(schema) or count > TABLES_MAX or len(header) < HEADER.size + count * TABLE.size:
        raise layout_error(name, "its schema is damaged")
    found = []
    entries, size = 0, 0
    for number, (table, fields) in enumerate(schema.items()):
        at, entry_bytes, entry_max, used, missing = TABLE.unpack_from(header, HEADER.size + number * TABLE.size)
        entries, size = entries + used, size + used * entry_bytes
        if not _entry_pattern(fields).size <= entry_bytes <= PAGE_BYTES_MAX or used > entry_max:
            raise layout_error(name, "its tables are damaged")
        found.append(Table(table, fields, at, entry_bytes, used, missing))
    if entries > ENTRIES_MAX or size > PAGE_BYTES_MAX:
        raise layout_error(name, "its tables are larger than any of HARP")
    return found


def _copy_entries(file: BinaryIO, name: str, table: Table) -> tuple[list[bytes], int]:
    """Return copies of a table's entries in use, zeros for a torn one, and the number of torn ones."""
    size = table.entry_bytes

    def read_entries() -> list[bytes]:
        data = read_piece(file, table.at, table.used * size)
        if len(data) < table.used * size:
            raise layout_error(name, "it is cut off")
        return [data[at : at + size] for at in range(0, len(data), size)]

    done = [bytes(size)] * table.used
    pending: Sequence[int] = range(table.used)
    before = read_entries()
    for tries in range(TRIES):
        time.sleep(PAUSE_S if tries else 0)
        now = read_entries()
        whole = {i for i in pending if now[i] == before[i] and HEAD.unpack_from(now[i])[0] % 2 == 0}
        for index in whole:
            done[index] = now[index]
        left = [index for index in pending if index not in whole]
        if not left:
            return done, 0
        pending, before = left, now
    return done, len(pending)


def _decode_rows(table: Table, copies: list[bytes]) -> list[Row]:
    pattern = _entry_pattern(table.fields)
    rows: list[Row] = []
    for index, copy in enumerate(copies):
        _, number = HEAD.unpack_from(copy)
        if not number:
            continue
        values = pattern.unpack_from(copy)
        row: Row = {"index": index, "id": number}
        for field, value in zip(table.fields, values, strict=True):
            row[field.name] = _decode_text(value) if field.kind == "T" else value
        rows.append(row)
    return rows


def read_header(file: BinaryIO, name: str) -> tuple[bytes, list[Table]]:
    """Read header and tables, all of whose sizes are bounded. Raises HarpError, which names the file."""
    header = read_piece(file, 0, HEADER.size + TABLES_MAX * TABLE.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise layout_error(name, "it does not begin as one" if header else "it is empty")
    unpacked = HEADER.unpack_from(header)
    if unpacked[1] != FORMAT:
        raise layout_error(name, f"it has format {unpacked[1]}, and this harpctl knows {FORMAT}")
    return header, _read_tables(file, name, header, unpacked[9], unpacked[10])


def read_fields(file: BinaryIO, name: str) -> dict[str, tuple[Field, ...]]:
    """Read which fields each table has."""
    return {table.name: table.fields for table in read_header(file, name)[1]}


def read_page(file: BinaryIO, name: str) -> Page:
    """Read a file, each entry as of one moment. Raises HarpError, which names the file."""
    header, tables = read_header(file, name)
    _, _, _, pid, ticks, namespace, unix_ns, begun_ns, updated_ns, *rest = HEADER.unpack_from(header)
    rows: dict[str, list[Row]] = {}
    torn = 0
    for table in tables:
        copies, lost = _copy_entries(file, name, table)
        rows[table.name] = _decode_rows(table, copies)
        torn += lost
    return Page(
        pid=pid,
        start_ticks=ticks,
        pid_namespace=namespace,
        created_unix_ns=unix_ns,
        created_ns=begun_ns,
        updated_ns=updated_ns,
        version=_decode_text(rest[2]),
        host=_decode_text(rest[3]),
        missing={table.name: table.missing for table in tables if table.missing},
        torn=torn,
        tables=rows,
        bytes=sum(table.used * table.entry_bytes for table in tables),
    )
