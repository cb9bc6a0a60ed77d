# SPDX-License-Identifier: Apache-2.0
"""Running ranks: command lines, reports, failures named, nobody left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from harpctl.errors import HarpError
from harplab.bench.places import LoopbackHosts
from harplab.perf import job as perf_module
from harplab.perf.hosts import Program
from harplab.perf.job import PerfJob, parse_report, perf_argv, run_perf

JOB = PerfJob("stream", (8, 1024), iterations=10)


def test_command_line() -> None:
    program = Program(Path("/p/harp-perf"), Path("/p/x.so"))
    job = PerfJob("ring", (8, 4096), connections=3, inflight=32, check=False, time_s=0.25, abi=8, device=1)
    assert perf_argv(program, job, 1, 4, "10.0.0.1:99") == [
        "/p/harp-perf",
        "--plugin",
        "/p/x.so",
        "--mode",
        "ring",
        "--sizes",
        "8,4096",
        "--connections",
        "3",
        "--inflight",
        "32",
        "--time",
        "0.25",
        "--no-check",
        "--abi",
        "8",
        "--dev",
        "1",
        "--rank",
        "1",
        "--nranks",
        "4",
        "--rendezvous",
        "10.0.0.1:99",
    ]
    first = perf_argv(program, JOB, 0, 2, "h:1")
    assert first[-2:] == ["--json", "-"]
    assert "--iters" in first
    assert "--wait-sent" not in first
    waiting = perf_argv(program, PerfJob("pingpong", (8,), wait_sent=True), 0, 2, "h:1")
    assert "--wait-sent" in waiting
    assert "--time" not in first
    assert "--check" in first


def test_report_is_read_strictly() -> None:
    good = {
        "plugin": "x",
        "name": "X",
        "abi": 12,
        "mode": "stream",
        "nranks": 2,
        "connections": 1,
        "inflight": 8,
        "check": True,
        "results": [
            {
                "bytes": 8,
                "messages": 1,
                "seconds": 1.0,
                "algbw_gbps": 1,
                "busbw_gbps": 1.5,
                "wrong": 0,
                "new": 1,
            }
        ],
    }
    assert parse_report(json.dumps(good)).results[0].busbw_gbps == 1.5
    with pytest.raises(HarpError, match="missing required field `nranks`"):
        parse_report(json.dumps({name: value for name, value in good.items() if name != "nranks"}))
    with pytest.raises(HarpError, match=r"Expected `int`, got `str` - at `\$.abi`"):
        parse_report(json.dumps({**good, "abi": "12"}))
    with pytest.raises(HarpError, match="harp-perf's report is not understood") as caught:
        parse_report("")
    assert caught.value.hint == "It begins with: nothing"


def test_ranks_run_and_report(fake_perf: Path, fake_plugin: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = Program(fake_perf, fake_plugin, {"FAKE_LOG": str(log), "FAKE_GBPS": "42", "HARP_DRIVER": "udp"})
    done = run_perf(LoopbackHosts(3), program, JOB)
    assert [(row.bytes, row.algbw_gbps) for row in done.report.results] == [(8, 42), (1024, 42)]
    assert done.cpu.busy_s >= 0
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(call["argv"][call["argv"].index("--rank") + 1] for call in calls) == ["0", "1", "2"]
    assert {call["env"]["HARP_DRIVER"] for call in calls} == {"udp"}
    assert {call["env"]["HARP_IFNAME"] for call in calls} == {"=lo"}


def test_a_failing_rank_is_named_with_its_words(fake_perf: Path, fake_plugin: Path) -> None:
    program = Program(fake_perf, fake_plugin, {"FAKE_FAIL_RANK": "1"})
    with pytest.raises(HarpError) as caught:
        run_perf(LoopbackHosts(), program, JOB)
    assert f"harp-perf failed with {fake_plugin}" in caught.value.message
    assert "rank 1: exit code 3\n      harp-perf: the ENI is on fire" in caught.value.hint
    assert "rank 0: exit code 0" in caught.value.hint


def test_the_others_are_ended_when_one_has_failed(
    fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(perf_module, "GRACE_S", 0.2)
    pids = tmp_path / "pids"
    fake_perf.write_text(
        fake_perf.read_text().replace(
            "import json, os, sys",
            f"import json, os, sys\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')",
            1,
        )
    )
    program = Program(fake_perf, fake_plugin, {"FAKE_FAIL_RANK": "0", "FAKE_HANG": "1"})
    with pytest.raises(HarpError) as caught:
        run_perf(LoopbackHosts(), program, JOB)
    assert "rank 1: did not end" in caught.value.hint
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_a_plugin_that_crashes_is_reported_with_its_signal(fake_perf: Path, fake_plugin: Path) -> None:
    fake_perf.write_text("#!/bin/sh\nkill -SEGV $$\n")
    with pytest.raises(HarpError) as caught:
        run_perf(LoopbackHosts(), Program(fake_perf, fake_plugin), JOB)
    assert "ended by signal 11" in caught.value.hint


def test_fake_perf_speaks_the_format(fake_perf: Path, fake_plugin: Path) -> None:
    report = run_perf(LoopbackHosts(), Program(fake_perf, fake_plugin), PerfJob("pingpong", (8,))).report
    assert report.results[0].latency_us is not None
    assert msgspec.json.decode(msgspec.json.encode(report)) is not None
    assert os.access(fake_perf, os.X_OK)
