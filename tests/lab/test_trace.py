# SPDX-License-Identifier: Apache-2.0
"""The last events of jobs in a lab: read while they run, after they were killed, and out of dumps."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.errors import ExitCode
from harpctl.host.host import Host
from harpctl.stats.files import find_processes
from harpctl.trace.clock import SENDING
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import Job, drop_packets, poll_until

pytestmark = [pytest.mark.lab]
MakeLab = Callable[[LabSpec], Lab]
LONG = ("--iters", "10000000", "--warmup", "1", "--connections", "2")
ERROR_MAX_NS = 20e6  # the clocks' error, on a busy machine


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide where the jobs of the test have their files: in memory, as /run is."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        monkeypatch.setenv("HARP_STATS_DIR", f"{name}/stats")
        yield Path(name)


@pytest.fixture
def job(request: pytest.FixtureRequest, make_lab: MakeLab, plugin_file: Path, folder: Path) -> Iterator[Job]:
    """Provide a job without end of two hosts over eni0; the parameter is environment."""
    env = {
        "HARP_STATS_DIR": f"{folder}/stats",
        "HARP_DUMP_DIR": f"{folder}/dumps",
        "HARP_DRIVER": "udp",
        **getattr(request, "param", {}),
    }
    with Job(make_lab(LabSpec(enis=2)), plugin_file, words=LONG, env=env) as running:
        poll_until("messages move", lambda: all(map(is_moving, running.ranks)))
        yield running


def is_moving(rank: Any) -> bool:
    rows = [
        row for process in find_processes(Host(), rank.pid).processes for row in process.page.tables["session"]
    ]
    return any(int(row["sent_messages"]) + int(row["received_messages"]) > 0 for row in rows)


def lost_packets(pid: int) -> int:
    return sum(int(row["lost_packets"]) for row in find_processes(Host(), pid).processes[0].page.tables["session"])


def run_trace(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["trace", *map(str, words)])
    return done.exit_code, done.output


def read_history(*words: object) -> Any:
    code, output = run_trace(*words, "--json")
    assert code == 0, output
    return json.loads(output)


def list_dumps(folder: Path) -> list[Path]:
    return sorted((folder / "dumps").glob("harp-*.trace"))


def test_the_merged_story_names_the_loss(job: Job, tmp_path: Path) -> None:
    sender, receiver = (rank.pid for rank in job.ranks)

    drop_packets(job.lab, 1, "udp length > 1000 numgen random mod 100 < 2", "eni0")
    poll_until("loss is recorded", lambda: lost_packets(sender) > 20)
    found: Any = None

    def is_placed() -> bool:
        """Return whether the two were read so close to each other that both have some packet."""
        nonlocal found
        found = read_history(sender, receiver)
        return bool(0 <= found["clock"]["error_ns"] < ERROR_MAX_NS)

    poll_until("both histories have the same packets", is_placed)
    assert abs(found["clock"]["ahead_ns"]) < ERROR_MAX_NS  # it is one clock in truth
    assert [side["pid"] for side in found["sides"]] == [sender, receiver]
    (mark,) = {session["mark"] for side in found["sides"] for session in side["sessions"]}
    worst = found["paths"][0]
    assert (worst["side"], worst["mark"]) == (0, mark)
    assert worst["name"].startswith("eni0 to ")
    assert worst["lost"] > 0 < worst["gaps"]
    moments = [event["unix_ns"] for event in found["events"]]
    assert moments == sorted(moments)
    code, output = run_trace(sender, receiver, "--plot", tmp_path / "history.png", "--last", 1000)
    assert code == 0
    assert f"path {worst['path']} (eni0 to " in output
    assert "packets were found lost" in output
    assert "the other end saw" in output
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


def test_a_lost_packet_is_seen_to_leave_before_it_is_missed(job: Job) -> None:
    sender, receiver = (rank.pid for rank in job.ranks)
    drop_packets(job.lab, 1, "udp length > 1000 numgen random mod 100 < 2", "eni0")

    def order() -> list[tuple[int, int, int]]:
        """Return when packets that were lost were sent, missed there, and found lost here."""
        events = read_history(sender, receiver)["events"]
        sent: dict[tuple[int, int], int] = {}
        for event in (one for one in events if one["event"] in SENDING):
            for number in range(event["number"], event["number"] + event["count"]):
                sent[event["path"], number] = event["unix_ns"]
        missed = {
            (one["path"], one["number"] - one["a"]): one["unix_ns"] for one in events if one["event"] == "RX_GAP"
        }
        lost = {(one["path"], one["number"]): one["unix_ns"] for one in events if one["event"] == "LOST"}
        return [(sent[key], missed[key], lost[key]) for key in lost if key in sent and key in missed]

    def is_in_order() -> bool:
        seen = order()
        assert all(left <= min(missed, found) for left, missed, found in seen)
        # A probe timeout takes packets for lost before the other end has missed them.
        return sum(missed <= found for _, missed, found in seen) > 3

    poll_until("such packets are recorded", is_in_order)


def test_a_running_process_can_be_kept_as_a_dump(job: Job, tmp_path: Path) -> None:
    pid = job.ranks[0].pid
    kept = tmp_path / "kept.trace"
    assert run_trace(pid, "--save", kept)[0] == 0
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    found = read_history(kept)
    assert found["sides"][0]["pid"] == pid
    assert found["sides"][0]["why"] == "on demand"
    assert {"SESSION_OPEN", "PATH_STATE", "STREAM_OPEN"} <= {event["event"] for event in found["events"]}


def test_a_killed_process_leaves_its_history_and_the_other_a_dump(job: Job, folder: Path) -> None:
    left, killed = (rank.pid for rank in job.ranks)
    os.kill(killed, signal.SIGKILL)
    job.ranks[1].wait()
    assert read_history(killed)["events"][-1]["event"]
    poll_until("there is a dump", lambda: len(list_dumps(folder)) == 1)
    job.ranks[0].wait()
    (dump,) = list_dumps(folder)
    assert stat.S_IMODE(dump.stat().st_mode) == 0o600
    found = read_history(dump)
    assert found["sides"][0]["pid"] == left
    assert found["sides"][0]["why"].startswith("a session has failed: ")
    assert [event["text"] for event in found["events"] if event["event"] == "SESSION_STATE"] == [
        "session goes from open to failed"
    ]
    assert str(dump) in job.log(0)
    merged = read_history(dump, killed)
    assert merged["clock"]["error_ns"] >= 0


def test_a_stall_leaves_a_dump(make_lab: MakeLab, plugin_file: Path, folder: Path) -> None:
    env = {
        "HARP_STATS_DIR": f"{folder}/stats",
        "HARP_DUMP_DIR": f"{folder}/dumps",
        "HARP_PEER_TIMEOUT": "120",
        "HARP_STALL_TIME": "3",
    }
    with Job(make_lab(LabSpec(enis=2)), plugin_file, words=LONG, env=env) as job:
        poll_until("messages move", lambda: all(map(is_moving, job.ranks)))
        os.kill(job.ranks[1].pid, signal.SIGSTOP)
        poll_until("there is a dump", lambda: len(list_dumps(folder)) == 1)
        poll_until("it is whole", lambda: str(list_dumps(folder)[0]) in job.log(0))
        found = read_history(list_dumps(folder)[0])
    assert found["sides"][0]["why"].startswith("NCCL waits: ")
    (stall,) = [event["text"] for event in found["events"] if event["event"] == "STALL"]
    assert re.match(r"NCCL has waited for [3-9]", stall)
    assert stall.endswith("peer stopped")


def test_a_dump_that_is_cut_off(job: Job, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.trace", tmp_path / "part.trace"
    assert run_trace(job.ranks[0].pid, "--save", whole)[0] == 0
    data = whole.read_bytes()
    part.write_bytes(data[: len(data) - 200_000])
    code, output = run_trace(part)
    assert code == ExitCode.WRONG_DATA
    assert "This file is cut off" in output
