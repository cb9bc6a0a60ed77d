# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab simulate`: what it plans, refuses and prints. The model itself: tests/unit/test_cluster.c."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from harpctl.build_info import built_file
from harpctl.cli import app
from harpctl.errors import ExitCode, HarpError
from harplab.simulate.report import lines_of, markdown, rows_of
from harplab.simulate.run import PROGRAM, Cluster, Simulated, planned, simulate, simulate_all


def run_simulate(*words: str) -> Result:
    return CliRunner().invoke(app, ["lab", "simulate", *words])


SMALL = ("size_mb=1", "interfaces=2", "operations=1")


def make_simulated(transport: str, **changed: object) -> Simulated:
    fields = {
        "collective": "ring",
        "transport": transport,
        "hosts": 16,
        "interfaces": 8,
        "rate_gbit_s": 25.0,
        "connections": 128,
        "operations": 2,
        "unfinished": 0,
        "mean_ms": 10.0,
        "least_ms": 9.0,
        "most_ms": 11.0,
        "ideal_ms": 8.0,
        "slowdown": 1.25,
        "host_gbit_s": 160.0,
        "sent": 1000,
        "lost_percent": 0.5,
        "queue_max_us": 20.0,
        "jain": 0.9,
        "events": 10000,
        "cpu_s": 0.1,
    }
    return msgspec.convert({**fields, **changed}, Simulated)


def test_each_cluster_runs_by_each_transport() -> None:
    clusters, notes = planned(["ring", "alltoall"], [16, 256], ["harp", "tcp"], ["rate=10"])
    assert [(one.collective, one.hosts, one.transport) for one in clusters] == [
        ("ring", 16, "harp"),
        ("ring", 16, "tcp"),
        ("ring", 256, "harp"),
        ("ring", 256, "tcp"),
        ("alltoall", 16, "harp"),
        ("alltoall", 16, "tcp"),
    ]
    assert notes == ["alltoall of 256 hosts is left out: more than 40,000 connections."]


def test_rows_put_transports_beside_each_other() -> None:
    rows = rows_of([make_simulated("harp"), make_simulated("tcp", mean_ms=25.0, lost_percent=1.25, jain=0.5)])
    assert lines_of(rows)[2] == ["ring", "16", "8.00", "10.00", "25.00", "2.50", "0.50, 1.25", "0.90, 0.50"]
    assert markdown(rows).splitlines()[1:] == [
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| ring | 16 | 8.00 | 10.00 | 25.00 | 2.50 | 0.50, 1.25 | 0.90, 0.50 |",
    ]


def test_an_unfinished_run_has_no_speed_up() -> None:
    (row,) = rows_of([make_simulated("harp"), make_simulated("tcp", unfinished=1)])
    assert row.speedup() is None
    assert lines_of([row])[2][3:6] == ["10.00", "unfinished", "-"]


@pytest.mark.parametrize("transport", ["harp", "tcp"])
@pytest.mark.parametrize("collective", ["ring", "tree", "alltoall", "incast"])
def test_the_program_simulates(collective: str, transport: str) -> None:
    done = simulate(built_file(PROGRAM, "harplab"), Cluster(collective, 4, transport, SMALL))
    assert (done.collective, done.hosts, done.transport) == (collective, 4, transport)
    assert done.is_finished
    assert done.operations == 1
    assert 1 <= done.slowdown < 30  # in its first operation: windows open
    assert 0 < done.jain <= 1


def test_results_come_in_the_order_of_the_plan() -> None:
    clusters, _ = planned(["incast", "ring"], [2, 5], ["tcp"], SMALL)
    told: list[str] = []
    done = simulate_all(built_file(PROGRAM, "harplab"), clusters, 2, told.append)
    assert [(one.collective, one.hosts) for one in done] == [(one.collective, one.hosts) for one in clusters]
    assert sorted(told) == ["incast 2 tcp", "incast 5 tcp", "ring 2 tcp", "ring 5 tcp"]


def test_what_the_program_refuses_is_said_in_its_words() -> None:
    with pytest.raises(HarpError, match="interfaces is a whole number from 1 to 8") as failure:
        simulate(built_file(PROGRAM, "harplab"), Cluster("ring", 4, "harp", ("interfaces=9",)))
    assert failure.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--collective", "star"], "'star' is no collective"),
        (["--transport", "udp"], "'udp' is no transport"),
        (["--hosts", "1"], "'1' are no numbers of hosts"),
        (["--hosts", "16,x"], "'16,x' are no numbers of hosts"),
        (["nonsense"], "'nonsense' is no KEY=VALUE"),
        (["hosts=4"], "hosts is an option here"),
        (["nonsense=1", "--hosts", "2"], "not a parameter, or not a value: nonsense=1"),
        (["--hosts", "256", "--collective", "alltoall"], "Nothing is left to simulate"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], words: str) -> None:
    done = run_simulate(*arguments)
    assert done.exit_code == ExitCode.USAGE
    assert words in done.stderr


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "table.md"
    done = run_simulate(*SMALL, "--hosts", "2", "--collective", "ring", "--json", "--markdown", str(file))
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["settings"] == list(SMALL)
    assert [run["transport"] for run in content["runs"]] == ["harp", "tcp"]
    assert file.read_text(encoding="utf-8").count("\n") == 3
    late = run_simulate(*SMALL, "limit_s=0.0001", "--hosts", "2", "--collective", "ring")
    assert late.exit_code == ExitCode.FAILED
    assert "did not finish" in late.stderr
