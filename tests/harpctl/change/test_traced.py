# SPDX-License-Identifier: Apache-2.0
"""Killed by a tracer at the n-th system call of a kind, whatever Python makes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harpctl.change.site import make_host, make_tree, set_up, take_snapshot, undo_all

CALLS = ("write", "fsync", "rename", "mkdir", "unlink", "symlink", "fchmod", "flock")
CODE = """
import sys
from pathlib import Path
from tests.harpctl.change.site import make_host, set_up
set_up(make_host(Path(sys.argv[1])))
"""
STRIDE = 6  # the sweep in test_killed.py leaves no point out


def can_trace() -> bool:
    if not shutil.which("strace"):
        return False
    done = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="needs strace and leave to trace")
@pytest.mark.parametrize("call", CALLS)
def test_setup_killed_at_system_calls(tmp_path: Path, call: str) -> None:
    root = tmp_path / "host"
    kills = 0
    for point in range(1, 1000, STRIDE):
        make_tree(root)
        before = take_snapshot(root)
        inject = f"inject={call}:signal=KILL:when={point}"
        argv = ["strace", "-o", os.devnull, "-e", f"trace={call}", "-e", inject]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*argv, sys.executable, "-c", CODE, str(root)], env=env, check=False)
        if kills % 2:
            set_up(make_host(root))
        assert undo_all(make_host(root)).kept == ()
        assert take_snapshot(root) == before, point
        shutil.rmtree(root)
        if done.returncode == 0:
            break
        assert done.returncode in {-9, 137}
        kills += 1
    assert kills > 0
