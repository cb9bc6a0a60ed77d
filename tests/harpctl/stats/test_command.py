# SPDX-License-Identifier: Apache-2.0
"""`harpctl stats --fields`: the meanings that a process's file has."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.errors import ExitCode
from tests.harpctl.stats.build import FIELDS, pack_page


def run_stats(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["stats", *words])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARP_STATS_DIR", str(tmp_path))
    return tmp_path


def test_fields_are_shown_with_units_and_meanings(folder: Path) -> None:
    (folder / "12-4711.stats").write_bytes(pack_page(12, {}))
    lines = [line.split(maxsplit=2) for line in run_stats("--fields").splitlines()]
    assert len(lines) == 1 + sum(map(len, FIELDS.values()))
    shown = {(table, field): " ".join(rest.split()) for table, field, rest in lines[1:]}
    assert shown["engine", "tx_bytes"] == "bytes payload"
    assert shown["engine", "eni_first"] == "gauge index"
    assert shown["session", "rtt_ns"] == "gauge, nanoseconds RTT"


@pytest.mark.usefixtures("folder")
def test_without_a_process_there_are_no_fields() -> None:
    assert run_stats("--fields") == "No process here has HARP statistics.\n"
    assert "--fields has no JSON" in run_stats("--fields", "--json", code=ExitCode.USAGE)
