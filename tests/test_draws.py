# SPDX-License-Identifier: Apache-2.0
"""Two runs of a commit draw the same examples; `--draws N` draws N times as many, others in each run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ALSO_SET = re.compile(
    r"\bmax_examples|\bderandomize|\bdeadline=|register_profile|\bfrom hypothesis .*\bsettings\b"
)
DRAWING = """
import json, sys
from hypothesis import given, strategies as st
from tests import draws
draws.choose_suite(int(sys.argv[1]))
draws.import_all()
drawn = []

@draws.draw_examples(40)
@given(words=st.lists(st.sampled_from("abc")), data=st.binary(), text=st.text(), number=st.integers())
def some(*, words, data, text, number):
    drawn.append(repr((words, data, text, number)))

@given(st.integers(0, 1 << 30))
def usual(value):
    drawn.append(repr(value))

some()
usual()
json.dump(drawn, sys.stdout)
"""
FAILING = """
import time
from hypothesis import given, strategies as st
from tests import draws
draws.SHRINK_S = 1
draws.choose_suite(2)

@given(st.lists(st.integers(), min_size=20))
def test_slow(values):
    time.sleep(0.05)
    assert sum(values) < 1000

test_slow()
"""


def run_code(
    root: Path, tmp_path: Path, code: str, *words: str, seed: int = 0
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "drawing.py"
    file.write_text(code)
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": str(seed)}
    argv = [sys.executable, str(file), *words]
    return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)


def draw_with(root: Path, tmp_path: Path, times: int, seed: int = 0) -> list[str]:
    done = run_code(root, tmp_path, DRAWING, str(times), seed=seed)
    assert done.returncode == 0, done.stderr
    return [str(one) for one in json.loads(done.stdout)]


def test_two_runs_draw_the_same(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = draw_with(root, tmp_path, 0, seed=1)
    assert len(once) == 140
    monkeypatch.setenv("CI", "true")
    assert draw_with(root, tmp_path, 0, seed=2) == once


def test_the_random_suite_draws_more_and_others(root: Path, tmp_path: Path) -> None:
    once, again = draw_with(root, tmp_path, 3), draw_with(root, tmp_path, 3)
    assert len(once) == len(again) == 3 * 140
    assert once != again


def test_a_failure_is_reported_in_bounded_time(root: Path, tmp_path: Path) -> None:
    done = run_code(root, tmp_path, FAILING)
    assert done.returncode == 1
    assert "WARNING: Hypothesis has spent" in done.stdout
    assert "test_slow(" in done.stderr
    assert "reproduce_failure" in done.stderr


def test_no_test_sets_for_itself_what_the_suite_sets(root: Path) -> None:
    """A number of examples set in a test would hold in the random suite too; phases would shrink without end."""
    own = {root / "tests" / "draws.py", Path(__file__).resolve()}
    users = [file for file in sorted((root / "tests").rglob("*.py")) if "hypothesis" in file.read_text()]
    assert len(users) >= 10
    assert [file for file in users if file not in own and ALSO_SET.search(file.read_text())] == []
