# SPDX-License-Identifier: Apache-2.0
"""A process that has too few files for all that connect to it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.faults.conftest import Compile

PEERS = 24
FILES = 36
LEFT = FILES // 4  # the files that data connections leave
TIMEOUT_S = 120


def _run_program(program: Path, plugin: Path, how: str) -> tuple[list[int], str]:
    """Return how many connected, failed and were received from, and all that was printed."""
    words = [str(program), str(plugin), str(PEERS), str(FILES), how]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    text = done.stdout + done.stderr
    found = re.search(r"^connected (\d+), failed (\d+), received (\d+)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, text
    assert found, text
    return [int(number) for number in found.groups()], text


def test_a_lasting_shortage_is_an_error_on_both_sides(compile_c: Compile, plugin_file: Path) -> None:
    (connected, failed, received), text = _run_program(compile_c("many_peers"), plugin_file, "lasting")
    assert "HANG" not in text
    assert connected + failed == PEERS, text
    assert connected >= LEFT, text  # data connections leave room for control connections
    assert received == connected, text
    peers = re.findall(r"^peer: (.*)$", text, re.MULTILINE)
    assert len(peers) == failed, text
    assert all("its process has all files open that it may: raise the limit there" in warn for warn in peers)
    (warn,) = re.findall(r"^accept: (.*)$", text, re.MULTILINE)
    assert f"all {FILES} files" in warn
    assert "ulimit -n" in warn


def test_a_shortage_that_passes_costs_nothing(compile_c: Compile, plugin_file: Path) -> None:
    (connected, failed, received), text = _run_program(compile_c("many_peers"), plugin_file, "passing")
    assert [connected, failed, received] == [PEERS, 0, PEERS], text
    assert ": NET/HARP" not in text
