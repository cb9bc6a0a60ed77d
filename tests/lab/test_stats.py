# SPDX-License-Identifier: Apache-2.0
"""Statistics show a running job, and no job suffers from them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.host.host import Host
from harpctl.stats.files import Process, find_processes
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import Job, drop_packets, poll_until

pytestmark = [pytest.mark.lab]
MakeLab = Callable[[LabSpec], Lab]
ENIS = 4
ENI_NAMES = [f"eni{number}" for number in range(ENIS)]
LONG = ("--iters", "10000000", "--warmup", "1", "--connections", "2")
MESSAGE_BYTES = 65536
CAP_MBPS = 100.0  # it leaves the cores to others
LOOK_S = 0.6  # engines write four times a second
SEEN_S = 15.0  # as 2 s are promised; the rest is what a busy machine needs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide where the jobs of the test have their files, and harpctl looks for them."""
    monkeypatch.setenv("HARP_STATS_DIR", str(tmp_path / "stats"))
    return tmp_path / "stats"


@pytest.fixture
def job(request: pytest.FixtureRequest, make_lab: MakeLab, plugin_file: Path, folder: Path) -> Iterator[Job]:
    """Provide a job without end of two hosts with four ENIs each; the parameter is environment."""
    env = {"HARP_STATS_DIR": str(folder), "HARP_DUMP_DIR": "off", **getattr(request, "param", {})}
    meeting = folder.parent / "meeting"
    with Job(
        make_lab(LabSpec(enis=ENIS, cap_mbps=CAP_MBPS)),
        plugin_file,
        mode="bidir",
        words=LONG,
        env=env,
        ifname=",".join(ENI_NAMES),
        meeting=meeting,
    ) as running:
        poll_until("messages move", lambda: all(map(sent_messages, running.ranks)), wait_s=15)
        yield running


def sent_messages(rank: subprocess.Popen[bytes]) -> int:
    rows = [
        row for process in find_processes(Host(), rank.pid).processes for row in process.page.tables["session"]
    ]
    return sum(int(row["sent_messages"]) for row in rows)


def run_top() -> Any:
    """Return what `harpctl top --json` shows of the worst process."""
    done = CliRunner().invoke(app, ["top", "--json", "--interval", str(LOOK_S)])
    assert done.exit_code == 0
    return json.loads(done.stdout)["processes"][0]


def find_process(pid: int) -> Process:
    (process,) = find_processes(Host(), pid).processes
    return process


def run_stats(*words: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, ["stats", *words, "--json"])
    return done.exit_code, json.loads(done.stdout)


def read_session(pid: int) -> dict[str, Any]:
    (row,) = find_process(pid).page.tables["session"]
    return row


def test_a_running_job_is_seen_whole(job: Job) -> None:
    pids = [rank.pid for rank in job.ranks]
    code, document = run_stats(str(pids[0]))
    assert code == 0
    (process,) = document["processes"]
    assert process["pid"] == pids[0]
    assert process["state"] == "running"
    assert "harp-perf" in process["command"]
    (engine,) = process["engines"]
    assert [eni["name"] for eni in engine["enis"]] == ENI_NAMES
    assert all(eni["driver"].startswith("udp") and eni["tx_bytes"] > 0 for eni in engine["enis"])
    (seen_session,) = engine["sessions"]
    assert seen_session["peer_pid"] == pids[1]
    assert seen_session["sent_bytes"] == seen_session["sent_messages"] * MESSAGE_BYTES
    assert 0 < seen_session["rtt_min_ns"] <= seen_session["rtt_ns"] < 1e9
    assert {stream["direction"] for stream in seen_session["streams"]} == {"send", "receive"}

    def interfaces_up() -> set[Any]:
        (now,) = run_stats(str(pids[0]))[1]["processes"][0]["engines"][0]["sessions"]
        return {path["eni"] for path in now["paths"] if (path["state"], path["kind"]) == ("up", "udp")}

    poll_until("each carries", lambda: interfaces_up() == {eni["index"] for eni in engine["enis"]})


def test_what_is_read_is_whole(job: Job) -> None:
    """Readers read while the engines write; counters never fall."""
    before = 0
    for _ in range(100):
        row = read_session(job.ranks[0].pid)
        assert row["sent_bytes"] == row["sent_messages"] * MESSAGE_BYTES
        assert row["sent_messages"] >= before
        before = row["sent_messages"]


@pytest.mark.parametrize("job", [{"HARP_DRIVER": "udp"}], indirect=True, ids=["udp"])
def test_loss_is_seen_on_its_interface(job: Job) -> None:
    """1 % of what one of four ENIs of the other host is sent."""
    pid = job.ranks[0].pid
    drop_packets(job.lab, 1, "udp length > 1000 numgen random mod 100 < 1", "eni1")
    began = time.monotonic()

    def lossiest() -> str:
        shown = run_top()
        paths = [path for each in shown["sessions"] for path in each["paths"]]
        worst = max(paths, key=lambda path: float(path["lost_percent"]))
        is_named = shown["pid"] == pid and "eni1" in shown["problem"]
        return str(worst["eni"]) if is_named and worst["lost_percent"] > 0.3 else ""

    poll_until("it is shown of that interface", lambda: lossiest() == "eni1")
    assert time.monotonic() - began < SEEN_S


def test_states_of_a_process(job: Job, folder: Path) -> None:
    stopped, killed = (rank.pid for rank in job.ranks)
    poll_until("both run", lambda: {find_process(pid).state for pid in (stopped, killed)} == {"running"})
    os.kill(stopped, signal.SIGSTOP)
    poll_until("it is seen as stopped", lambda: find_process(stopped).state == "stopped")
    os.kill(killed, signal.SIGKILL)
    job.ranks[1].wait()
    assert find_process(killed).state == "gone"
    assert read_session(killed)["sent_messages"] > 0
    os.kill(stopped, signal.SIGCONT)
    poll_until("its file is removed when it ends", lambda: len(list(folder.iterdir())) == 1)


def test_an_orderly_end_leaves_nothing(make_lab: MakeLab, plugin_file: Path, folder: Path) -> None:
    words = ("--iters", "200", "--warmup", "1")
    with Job(make_lab(LabSpec(enis=2)), plugin_file, words=words, env={"HARP_STATS_DIR": str(folder)}) as job:
        job.finish()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "reason"), [("size=8k", "No space left on device"), ("ro", "Read-only file system")]
)
def test_no_disk_for_it(make_lab: MakeLab, plugin_file: Path, folder: Path, options: str, reason: str) -> None:
    """One line reports it, and the job does not suffer."""
    folder.mkdir()
    mount = f'mount -t tmpfs -o {options} tmpfs {folder} && exec "$@"'
    start = ("unshare", "--mount", "sh", "-c", mount, "sh")
    env = {"HARP_STATS_DIR": str(folder)}
    words = ("--iters", "200", "--warmup", "1")
    with Job(make_lab(LabSpec(enis=2)), plugin_file, words=words, env=env, start_by=start) as job:
        job.finish()
        lines = [line for line in job.log(0).splitlines() if "no statistics file" in line]
    assert len(lines) == 1
    assert lines[0].startswith("INFO ")
    assert reason in lines[0]
