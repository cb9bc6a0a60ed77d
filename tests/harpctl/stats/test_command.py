# SPDX-License-Identifier: Apache-2.0
"""`harpctl stats --fields`: the meanings that a process's file has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from tests.harpctl.stats.build import FIELDS, page


def stats(*words: str) -> str:
    done = CliRunner().invoke(app, ["stats", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARP_STATS_DIR", str(tmp_path))
    return tmp_path


def test_fields_are_shown_with_units_and_meanings(folder: Path) -> None:
    (folder / "12-4711.stats").write_bytes(page(12, {}))
    lines = [line.split(maxsplit=2) for line in stats("--fields").splitlines()]
    assert len(lines) == 1 + sum(map(len, FIELDS.values()))
    shown = {(table, field): " ".join(rest.split()) for table, field, rest in lines[1:]}
    assert shown["engine", "tx_bytes"] == "bytes payload"
    assert shown["engine", "eni_first"] == "gauge index"
    assert shown["session", "rtt_ns"] == "gauge, nanoseconds RTT"


def test_fields_as_json(folder: Path) -> None:
    (folder / "12-4711.stats").write_bytes(page(12, {}))
    rows = json.loads(stats("--fields", "--json"))
    expected = {
        "table": "eni",
        "field": "lost_packets",
        "unit": "packets",
        "kind": "C",
        "meaning": "lost",
    }
    assert expected in rows


@pytest.mark.usefixtures("folder")
def test_without_a_process_there_are_no_fields() -> None:
    assert stats("--fields") == "No process here has HARP statistics.\n"
    assert json.loads(stats("--fields", "--json")) == []
