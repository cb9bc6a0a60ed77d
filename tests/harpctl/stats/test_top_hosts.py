# SPDX-License-Identifier: Apache-2.0
"""`harpctl top -H`: the jobs of several hosts, over a stand-in for ssh that runs the command here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.errors import ExitCode
from harpctl.stats.layout import Row
from tests.harpctl.stats import build

FAKE_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case "$2" in
  down) echo "ssh: connect to host down port 22: Connection timed out" >&2; exit 255 ;;
  *) exec sh -c "$3" ;;
esac
"""


@pytest.fixture
def pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Provide a process that runs, this one, with a session that waits; and a file that is not ours."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    monkeypatch.setattr(build, "START", int(fields[19]))
    monkeypatch.setenv("HARP_STATS_DIR", str(tmp_path / "run" / "harp"))
    row: Row = {"host": "node7", "state": "open", "stall": "peer stopped", "stalled_ns": 12 * 10**9}
    data = build.pack_page(os.getpid(), {"session": [row]}, namespace=Path("/proc/self/ns/pid").stat().st_ino)
    build.write_page(tmp_path, os.getpid(), data)
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)
    places = (str(ssh.parent), str(Path(sys.executable).parent), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    return os.getpid()


@pytest.mark.usefixtures("pid")
def test_a_host_that_does_not_answer_hides_nothing() -> None:
    """A sentence says what to do about that host, and the others are shown."""
    shown = CliRunner().invoke(app, ["top", "-H", "here,down", "--interval", "0.3"])
    assert shown.exit_code == ExitCode.MISSING
    text = " ".join(shown.stdout.split())
    assert "here ok 1 processes, 1 sessions" in text
    assert "NCCL has waited for 12 s: peer stopped" in text
    assert "down unreachable ssh: connect to host down port 22: Connection timed out" in text
    assert "See whether the host is up and its port 22 open: ssh -v down" in text


def test_one_sample_of_each_host(pid: int, tmp_path: Path) -> None:
    build.write_page(tmp_path, pid + 1, b"nothing")
    done = CliRunner().invoke(app, ["top", "-H", "here,down", "--json", "--interval", "0.3"])
    here, down = json.loads(done.stdout)
    (process,) = here["answer"]["processes"]
    assert (process["pid"], process["sessions"][0]["host"]) == (pid, "node7")
    (unread,) = here["answer"]["unread"]
    assert unread["file"].endswith(f"{pid + 1}-{build.START}.stats")
    assert (down["result"], down["answer"]) == ("unreachable", None)
