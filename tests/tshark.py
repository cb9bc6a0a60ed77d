# SPDX-License-Identifier: Apache-2.0
"""Runs tshark with the dissector: the fields that it finds in a capture."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app

needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="needs tshark: a package of Debian and Fedora (120 MB)"
)
BETWEEN = "|"  # values of one field in one frame


def write_dissector(folder: Path) -> Path:
    """Write the dissector as a user does; return its file."""
    assert CliRunner().invoke(app, ["dissector", str(folder)]).exit_code == 0
    return folder / "harp.lua"


def read_capture(lua: Path, capture: Path, names: Sequence[str], query: str = "") -> list[dict[str, list[str]]]:
    """Return the named fields of each frame that a filter takes, after two passes without a Lua error."""
    argv = ["tshark", "-2", "-X", f"lua_script:{lua}", "-r", str(capture)]
    argv += ["-o", "udp.try_heuristic_first:TRUE", "-o", "tcp.try_heuristic_first:TRUE"]
    asked = ["-T", "fields", "-E", f"aggregator={BETWEEN}", "-e", "_ws.lua.error"]
    for name in names:
        asked += ["-e", name]
    done = subprocess.run(
        [*argv, *(["-Y", query] if query else []), *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    found = []
    for line in done.stdout.splitlines():
        error, *texts = line.split("\t")
        assert not error, line
        found.append({name: text.split(BETWEEN) if text else [] for name, text in zip(names, texts, strict=True)})
    return found
