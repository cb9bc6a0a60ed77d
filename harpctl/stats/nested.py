# SPDX-License-Identifier: Apache-2.0
"""The tables of a statistics file as one tree: engines with interfaces and sessions, these with the rest."""

from __future__ import annotations

from typing import Any

from harpctl.stats.files import Found, Process
from harpctl.stats.layout import Row

Tree = dict[str, Any]


def _of(rows: list[Row], key: str, index: object) -> list[Row]:
    return [row for row in rows if row.get(key) == index]


def _session(tables: dict[str, list[Row]], row: Row) -> Tree:
    paths = _of(tables.get("path", []), "session", row["index"])
    streams = _of(tables.get("stream", []), "session", row["index"])
    return {**row, "paths": paths, "streams": streams}


def _engine(tables: dict[str, list[Row]], row: Row) -> Tree:
    sessions = _of(tables.get("session", []), "engine", row["index"])
    return {
        **row,
        "enis": _of(tables.get("eni", []), "engine", row["index"]),
        "sessions": [_session(tables, session) for session in sessions],
    }


def tree_of(process: Process) -> Tree:
    """Return all that is known of a process."""
    page = process.page
    return {
        "pid": process.pid,
        "host": page.host,
        "state": process.state,
        "late_s": process.late_s,
        "rank": process.rank,
        "command": process.command,
        "file": process.file,
        "version": page.version,
        "created_unix_ns": page.created_unix_ns,
        "created_ns": page.created_ns,
        "updated_ns": page.updated_ns,
        "missing": page.missing,
        "torn": page.torn,
        "engines": [_engine(page.tables, row) for row in page.tables.get("engine", [])],
        "streams_without_session": _of(page.tables.get("stream", []), "session", -1),
    }


def document(found: Found) -> Tree:
    """Return what --json prints."""
    return {"processes": [tree_of(process) for process in found.processes], "unread": list(found.unread)}
