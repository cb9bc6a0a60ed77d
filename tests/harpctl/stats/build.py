# SPDX-License-Identifier: Apache-2.0
"""Statistics files as the plugin writes them, for tests of who reads them."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harpctl.stats.layout import FORMAT, HEADER, MAGIC, TABLE, Row, parse_schema

SCHEMA = """\
table engine
T name 16 interfaces
G updated_ns nanoseconds when the entry was written
G eni_first - index
C tx_bytes bytes payload
C drop_CRC packets packets dropped: checksum
table eni
T name 16 interface
G engine - index
C tx_bytes bytes sent
C lost_packets packets lost
table session
T host 16 peer
T state 16 state
G engine - index
G peer_pid - process
G stream_count streams how many
G outstanding requests waits
T stall 24 reason
T stall_eni 16 interface
G stalled_ns nanoseconds for how long
G rtt_ns nanoseconds RTT
C sent_bytes bytes payload
C received_bytes bytes payload
C lost_packets packets lost
C resent_packets packets resent
C probe_timeouts timeouts timeouts
table path
T address 24 address
T state 16 state
T kind 16 kind
G session - index
G eni - index
C tx_packets packets sent
C lost_packets packets lost
C probe_timeouts timeouts timeouts
table stream
T direction 8 send or receive
G session - index
C bytes bytes payload
"""
FIELDS = parse_schema(SCHEMA)
START = 4711
NAMESPACE = 4026531836
HEADER_BYTES = 16384


def pack_entry(table: str, row: Row, sequence: int = 2) -> bytes:
    data = struct.pack("=QQ", sequence, int(row.get("id", 1)))
    for field in FIELDS[table]:
        value = row.get(field.name, "" if field.kind == "T" else 0)
        if isinstance(value, str):
            data += value.encode().ljust(field.text_bytes, b"\0")
        else:
            data += struct.pack("=q", value)
    return data


def pack_page(
    pid: int,
    rows: Mapping[str, Sequence[Row]],
    *,
    age_s: float = 0.0,
    now_s: float | None = None,
    version: int = FORMAT,
    missing: int = 0,
    sequence: int = 2,
    namespace: int = NAMESPACE,
) -> bytes:
    """Return a file's bytes, written `age_s` before `now_s` (or now); each row may name its id."""
    written_ns = int(((time.monotonic() if now_s is None else now_s) - age_s) * 1e9)
    at = HEADER_BYTES
    tables, data = b"", b""
    for name in FIELDS:
        entries = [pack_entry(name, row, sequence) for row in rows.get(name, ())]
        size = len(pack_entry(name, {}))
        tables += TABLE.pack(at + len(data), size, 4096, len(entries), missing)
        data += b"".join(entries)
    head = HEADER.pack(
        MAGIC, version, HEADER_BYTES, pid, START, namespace, 1, 1, written_ns,
        512, len(SCHEMA), b"9.9", b"here", len(FIELDS), 0,
    )  # fmt: skip
    return ((head + tables).ljust(512, b"\0") + SCHEMA.encode()).ljust(HEADER_BYTES, b"\0") + data


def write_page(root: Path, pid: int, data: bytes, number: int | None = None) -> Path:
    """Write a file where a host below a root has it."""
    folder = root / "run" / "harp"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{pid}-{START if number is None else number}.stats"
    file.write_bytes(data)
    return file


def make_process(root: Path, pid: int, state: str = "S", start: int = START, **environment: str) -> None:
    """Make a process of that host."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    fields = " ".join(["1"] * 18)
    (folder / "stat").write_text(f"{pid} (a ) b) {state} {fields} {start} 0\n")
    (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
    (folder / "cmdline").write_text("python\0train.py\0")
    own = root / "proc" / "self" / "ns"
    own.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(own / "pid"):
        (own / "pid").symlink_to(f"pid:[{NAMESPACE}]")
