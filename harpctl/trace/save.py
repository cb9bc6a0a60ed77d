# SPDX-License-Identifier: Apache-2.0
"""Makes a dump of a running process: its statistics and rings, packed into one file as the plugin does it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

from harpctl.stats.layout import HEADER, TABLE, Table, layout_error, read_header, read_piece
from harpctl.trace.rings import ENTRY, HEAD, MARGIN, PARTS, RINGS, SLOTS_MAX, Rings, open_rings, rings_of

HEADER_BYTES_AT = 12  # the place in the header of its length, which includes its texts
HEADER_BYTES_MAX = 1 << 20


def _pack_tables(file: BinaryIO, header: bytearray, tables: Sequence[Table]) -> bytes:
    """Pack the entries in use, and write their places into the header."""
    packed = b""
    for number, table in enumerate(tables):
        size = table.used * table.entry_bytes
        place = (len(header) + len(packed), table.entry_bytes, table.used, table.used, table.missing)
        TABLE.pack_into(header, HEADER.size + number * TABLE.size, *place)
        packed += read_piece(file, table.at, size).ljust(size, b"\0")
    return packed


def _copy_ring(file: BinaryIO, rings: Rings, index: int) -> bytes:
    """Copy a ring without the entries that its engine may have changed meanwhile."""
    start = rings.at + index * rings.ring_bytes
    heads_at = start + rings.heads_at
    heads = read_piece(file, heads_at, len(PARTS) * HEAD.size)
    data = bytearray(read_piece(file, start, rings.ring_bytes).ljust(rings.ring_bytes, b"\0"))
    data[rings.heads_at : rings.heads_at + len(heads)] = heads
    after = read_piece(file, heads_at, len(PARTS) * HEAD.size).ljust(len(heads), b"\0")
    for part in range(len(heads) // HEAD.size):
        count, at, slots = HEAD.unpack_from(heads, part * HEAD.size)
        if not 0 < slots <= SLOTS_MAX or at + slots * ENTRY.size > len(data):
            continue
        changed = HEAD.unpack_from(after, part * HEAD.size)[0] + MARGIN - count
        for i in range(max(0, count - slots), min(count, count - slots + changed)):
            slot = at + i % slots * ENTRY.size
            data[slot : slot + ENTRY.size] = bytes(ENTRY.size)
    return bytes(data)


def dump_of(file: BinaryIO, name: str) -> bytes:
    """Return what a dump of the process holds now; raises HarpError, which names it."""
    rings = rings_of(file, name)
    start, tables = read_header(file, name)
    header_bytes = int.from_bytes(read_piece(file, HEADER_BYTES_AT, 4), sys.byteorder)
    header = bytearray(read_piece(file, 0, min(header_bytes, HEADER_BYTES_MAX)))
    if len(header) < HEADER.size + len(tables) * TABLE.size + RINGS.size:
        raise layout_error(name, "it is cut off")
    head = HEADER.unpack_from(start)
    used = tables[0].used  # the entries of the table engine, the first
    packed = _pack_tables(file, header, tables)
    with open_rings(file, rings, head[3], name) as source:
        copies = b"".join(_copy_ring(source, rings, index) for index in range(min(used, rings.ring_count)))
    RINGS.pack_into(
        header,
        HEADER.size + len(tables) * TABLE.size,
        *rings._replace(
            at=len(header) + len(packed),
            ring_count=min(used, rings.ring_count),
            fd=-1,
            dumped_ns=time.monotonic_ns(),
            dumped_unix_ns=time.time_ns(),
            why=b"on demand",
        ),
    )
    return bytes(header) + packed + copies
