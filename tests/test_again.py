# SPDX-License-Identifier: Apache-2.0
"""The suite run several times: its table, each failed test's output, busy processes that end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import keep_busy, main
from tests.conftest import ROOT
from tests.lab.job import poll_until

SOMETIMES = """
import pathlib, pytest

def test_good():
    pass

def test_second_time():
    print("what it saw")
    seen = pathlib.Path(__file__).with_name("seen")
    if seen.exists():
        raise AssertionError("only the first time is good")
    seen.touch()

@pytest.mark.skip(reason="never")
def test_skipped():
    pass
"""


def test_what_fails_at_times_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, folder = tmp_path / "test_some.py", tmp_path / "again"
    suite.write_text(SOMETIMES)
    words = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(suite)]
    assert main(["3", "--beside", "1", "--folder", str(folder), *words]) == 1
    text = (folder / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert "1 of 3 runs passed, beside 1 busy processes" in text
    assert "| 1 | passed | 2 | 0 | 1 |" in text
    assert "| 3 | failed | 1 | 1 | 1 |" in text
    assert "| test_some::test_second_time | 2 | " in text
    outputs = sorted(folder.glob("run-*-*.txt"))
    assert [file.name for file in outputs] == [f"run-{n}-test_some_test_second_time.txt" for n in (2, 3)]
    assert "only the first time is good" in outputs[0].read_text()
    assert "what it saw" in outputs[0].read_text()


def test_a_run_without_a_result_is_no_success(tmp_path: Path) -> None:
    assert main(["1", "--folder", str(tmp_path), "--no-such-option"]) == 1
    assert "| 1 | exit code 4 | 0 | 0 | 0 |" in (tmp_path / "table.md").read_text()


HOLD = """
import time, tests.again
with tests.again.keep_busy(1) as pids:
    print(*pids, flush=True)
    time.sleep(600)
"""


def _is_busy(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


def test_busy_processes_end() -> None:
    with keep_busy(2) as pids:
        assert all(_is_busy(pid) for pid in pids)
    assert not any(_is_busy(pid) for pid in pids)


def test_busy_processes_end_with_one_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        pid = int(holder.stdout.readline())
        assert _is_busy(pid)
        holder.kill()
    poll_until("the busy process has ended", lambda: not _is_busy(pid))
