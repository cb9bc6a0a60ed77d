# SPDX-License-Identifier: Apache-2.0
"""Dumps as the plugin writes them, for tests of who reads them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from harpctl.stats.layout import FORMAT, HEADER, MAGIC, TABLE, Row, parse_schema
from harpctl.trace.rings import ENTRY, HEAD, PARTS, RINGS

SCHEMA = """\
table engine
T name 16 interfaces
table eni
T name 16 interface
table session
T host 16 peer
G peer_pid - process
G mark - number
G path_first - index
table path
T address 24 address
G session - index
G eni - index
"""
EVENTS = """\
TX_DATA FLOW path {path} sends packets {number}+{count}
RX_ACK FLOW path {path} acked up to {number}
TX_ACK FLOW path {path} acknowledges up to {number}
LOST RECOVERY path {path} lost {count} packets from {number} on, line {a} first
TX_AGAIN RECOVERY path {path} resends as packets {number}+{count}
RX_GAP RECOVERY path {path} packet {number} came, {a} before it are missing
PTO RECOVERY path {path} probe timeout
PATH_STATE STATE path {path} goes from {a:new|up} to {b:new|up}
SESSION_OPEN STATE session {number} opens
NO_PASS STATE no pass for {b} ms
"""
KINDS = {line.split()[0]: (number, line.split()[1]) for number, line in enumerate(EVENTS.splitlines())}
FIELDS = parse_schema(SCHEMA)
SLOTS = 128
SCHEMA_AT, EVENTS_AT, HEADER_BYTES = 512, 2048, 4096


class Entry(NamedTuple):
    """An event to be written."""

    at_ns: int
    name: str
    number: int = 0
    packets: int = 0
    a: int = 0
    b: int = 0
    peer: int = 0


def _pack_row(table: str, row: Row) -> bytes:
    data = struct.pack("=Qq", 2, 1)
    for field in FIELDS[table]:
        value = row[field.name]
        data += (
            value.encode().ljust(field.text_bytes, b"\0") if isinstance(value, str) else struct.pack("=q", value)
        )
    return data


def _pack_ring(entries: list[Entry], rare: int) -> tuple[bytes, bytes]:
    """Return heads and entries."""
    parts: dict[str, list[bytes]] = {part: [] for part in PARTS}
    for entry in entries:
        event, part = KINDS[entry.name]
        rare += part != "FLOW"
        packed = ENTRY.pack(
            entry.at_ns, entry.number, entry.a, entry.b, entry.peer, 0, event, 0, entry.packets, rare & 255
        )
        parts[part].append(packed)
    heads = data = b""
    for part in PARTS:
        slots = [bytes(ENTRY.size)] * SLOTS
        for index, packed in enumerate(parts[part]):
            slots[index % SLOTS] = packed
        heads += HEAD.pack(len(parts[part]), len(data), SLOTS)
        data += b"".join(slots)
    return heads, data


def pack_recording(
    host: str,
    pid: int,
    peer: str,
    mark: int,
    entries: list[Entry],
    *,
    rare: int = 0,
    dumped_ns: int = 1,
    created_ns: int = 0,
    fd: int = -1,
) -> bytes:
    """Return a dump of one engine with one session of one path."""
    rows: dict[str, Row] = {
        "engine": {"name": "eni0"},
        "eni": {"name": "eni0"},
        "session": {"host": peer, "peer_pid": 9, "mark": mark, "path_first": 0},
        "path": {"address": "10.0.0.2:7", "session": 0, "eni": 0},
    }
    tables, data = b"", b""
    for name, row in rows.items():
        packed = _pack_row(name, row)
        tables += TABLE.pack(HEADER_BYTES + len(data), len(packed), 1, 1, 0)
        data += packed
    heads, ring = _pack_ring(entries, rare)
    at = HEADER_BYTES + len(data) + len(heads)
    rings = RINGS.pack(  # the fields of harpctl.trace.rings.Rings, in their order
        at, len(ring), 1, 0, HEAD.size, ENTRY.size, EVENTS_AT, len(EVENTS), -len(heads), fd, 0,
        dumped_ns, 1, b"a test",
    )  # fmt: skip
    start_ticks = namespace = created_unix_ns = updated_ns = 1
    header = HEADER.pack(  # struct harp_stats_header
        MAGIC, FORMAT, HEADER_BYTES, pid, start_ticks, namespace, created_unix_ns, created_ns, updated_ns,
        SCHEMA_AT, len(SCHEMA), b"9.9", host.encode(), len(rows), 0,
    )  # fmt: skip
    head = (header + tables + rings).ljust(SCHEMA_AT, b"\0") + SCHEMA.encode()
    head = head.ljust(EVENTS_AT, b"\0") + EVENTS.encode()
    return head.ljust(HEADER_BYTES, b"\0") + data + heads + ring
