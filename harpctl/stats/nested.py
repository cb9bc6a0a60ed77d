# SPDX-License-Identifier: Apache-2.0
"""The tables of a statistics file as one tree: engines with interfaces and sessions, these with the rest."""

from __future__ import annotations

from typing import Any

from harpctl.stats.files import Found, Process
from harpctl.stats.layout import Row, rows_by

Tree = dict[str, Any]


def tree_of(process: Process) -> Tree:
    """Return all that is known of a process."""
    page = process.page
    groups = {
        (table, key): rows_by(page.tables.get(table, []), key)
        for table, key in (
            ("eni", "engine"),
            ("session", "engine"),
            ("path", "session"),
            ("stream", "session"),
        )
    }

    def of(table: str, key: str, row: Row) -> list[Row]:
        return groups[table, key].get(row["index"], [])

    def session(row: Row) -> Tree:
        return {**row, "paths": of("path", "session", row), "streams": of("stream", "session", row)}

    def engine(row: Row) -> Tree:
        sessions = [session(one) for one in of("session", "engine", row)]
        return {**row, "enis": of("eni", "engine", row), "sessions": sessions}

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
        "engines": [engine(row) for row in page.tables.get("engine", [])],
        "streams_without_session": groups["stream", "session"].get(-1, []),
    }


def make_document(found: Found) -> Tree:
    """Return what --json prints."""
    return {"processes": [tree_of(process) for process in found.processes], "unread": list(found.unread)}
