# SPDX-License-Identifier: Apache-2.0
"""Makes a dump of a running process: its statistics and rings, packed into one file as the plugin does it."""

from __future__ import annotations

import os
import time
from typing import BinaryIO

from harpctl.stats.layout import HEADER, TABLE
from harpctl.trace.rings import ENTRY, HEAD, MARGIN, PARTS, RINGS, Rings, in_memory, rings_of

HEADER_BYTES_AT = 12  # of the header: how long it is, with its texts


def _tables(file: BinaryIO, header: bytearray) -> bytes:
    """Pack the entries in use, and note in the header where they are."""
    packed = b""
    for number in range(HEADER.unpack_from(header)[13]):
        at = HEADER.size + number * TABLE.size
        where, entry_bytes, _, used, missing = TABLE.unpack_from(header, at)
        data = os.pread(file.fileno(), used * entry_bytes, where)
        TABLE.pack_into(header, at, len(header) + len(packed), entry_bytes, used, used, missing)
        packed += data.ljust(used * entry_bytes, b"\0")
    return packed


def _ring(file: BinaryIO, rings: Rings, index: int) -> bytes:
    """Copy a ring without the entries that its engine may have changed meanwhile."""
    start = rings.at + index * rings.ring_bytes
    heads_at = start + rings.heads_at
    heads = os.pread(file.fileno(), len(PARTS) * HEAD.size, heads_at)
    data = bytearray(os.pread(file.fileno(), rings.ring_bytes, start).ljust(rings.ring_bytes, b"\0"))
    data[rings.heads_at : rings.heads_at + len(heads)] = heads
    after = os.pread(file.fileno(), len(PARTS) * HEAD.size, heads_at)
    for part in range(len(heads) // HEAD.size):
        count, at, slots = HEAD.unpack_from(heads, part * HEAD.size)
        changed = HEAD.unpack_from(after, part * HEAD.size)[0] + MARGIN - count
        for i in range(max(0, count - slots), min(count, count - slots + changed)):
            slot = at + i % slots * ENTRY.size
            data[slot : slot + ENTRY.size] = bytes(ENTRY.size)
    return bytes(data)


def dump_of(file: BinaryIO, name: str) -> bytes:
    """Return what a dump of the process holds now; raises HarpError, which names it."""
    header_bytes = int.from_bytes(os.pread(file.fileno(), 4, HEADER_BYTES_AT), "little")
    rings = rings_of(file, name)
    header = bytearray(os.pread(file.fileno(), header_bytes, 0))
    head = HEADER.unpack_from(header)
    used = TABLE.unpack_from(header, HEADER.size)[3]  # of the table engine, the first
    packed = _tables(file, header)
    with in_memory(file, rings, head[3], name) as source:
        copies = b"".join(_ring(source, rings, index) for index in range(min(used, rings.ring_count)))
    RINGS.pack_into(
        header,
        HEADER.size + head[13] * TABLE.size,
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
