# SPDX-License-Identifier: Apache-2.0
"""Runs by the clock: with a harp-perf that measures nothing, and in a lab with failures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.cli import app
from harplab.bench import options


def run_harpctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def base(fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(options, "built_file", lambda _name: fake_perf)
    return ["bench", "--loopback", "--plugin", str(fake_plugin), "--by-clock", "--time", "0.2"]


def test_the_rate_over_time(base: list[str], tmp_path: Path) -> None:
    picture, log = tmp_path / "out.png", tmp_path / "log"
    done = run_harpctl(*base, "--plot", str(picture), "--env", f"FAKE_LOG={log}")
    assert done.exit_code == 0, done.output
    row = done.stdout.splitlines()[2].split()
    assert row[1:6] == ["all", "0.00", "10.000", "-", "0"]
    assert "Jain index 1.0000" in done.stdout
    (side,) = json.loads(run_harpctl(*base, "--json").stdout)["sides"]
    assert side["samples"]["interval_s"] == 0.001
    assert len(side["samples"]["bytes"]) == 200
    assert side["phases"][0]["rate_gbps"] == pytest.approx(10.0)
    assert picture.read_bytes().startswith(b"\x89PNG")
    argv = json.loads(log.read_text().splitlines()[0])["argv"]
    assert argv[argv.index("--sizes") + 1] == str(128 << 10)
    assert argv[argv.index("--interval-ms") + 1] == "1"
    assert argv[argv.index("--time") + 1] == "0.2"


def test_a_long_run_has_longer_samples(base: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_harpctl(*base[:-1], "90", "--env", f"FAKE_LOG={log}", "--env", "FAKE_NO_WINDOW=1")
    argv = json.loads(log.read_text().splitlines()[0])["argv"]
    assert argv[argv.index("--interval-ms") + 1] == "5"


def test_the_side_that_stalls_is_shown(base: list[str], fake_plugin: Path) -> None:
    words = ["--against", str(fake_plugin), "--against-env", "FAKE_STALL=1"]
    done = run_harpctl(*base, *words)
    assert done.exit_code == 0, done.output  # the other side's failure is a result
    assert "rank 1: the peer is gone" in done.stdout
    assert "3 accepted messages did not arrive" in done.stdout
    assert [line.split()[-3] for line in done.stdout.splitlines()[2:4]] == ["0", "100"]
    done = run_harpctl(*base, "--env", "FAKE_STALL=1")
    assert done.exit_code == 1
    assert "failed." in done.stderr
    assert "the peer is gone" in done.stdout


def test_the_side_without_a_window_is_shown(base: list[str]) -> None:
    done = run_harpctl(*base, "--env", "FAKE_NO_WINDOW=1")
    assert done.exit_code == 1
    assert "it stalled" in done.stdout
    assert done.stdout.splitlines()[2].split()[3:6] == ["0.000", "-", "200"]


def test_json_alone_on_standard_output(base: list[str]) -> None:
    document = json.loads(run_harpctl(*base, "--json").stdout)
    assert document["job"]["interval_ms"] == 1
    assert document["sides"][0]["jain"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "8,16"], "takes one size"),
        (["--mode", "pingpong"], "a mode that streams"),
    ],
)
def test_wrong_words(base: list[str], words: list[str], message: str) -> None:
    done = run_harpctl(*base, *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


@pytest.mark.usefixtures("base")
def test_the_run_outlasts_its_failures(fake_plugin: Path) -> None:
    done = run_harpctl("lab", "bench", "--plugin", str(fake_plugin), "--fail", "eni0:down@3+4", "--time", "6")
    assert done.exit_code == 2
    assert "is at 7 s, the run ends at 6 s" in done.stderr


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_eni_that_fails_in_a_lab() -> None:
    words = ["--enis", "2", "--cap", "500", "--fail", "eni1:down@0.3+0.3", "--fail", "1/eni1:blackhole@0.8"]
    done = run_harpctl("lab", "bench", *words, "--time", "5", "--json")
    assert done.exit_code == 0, done.output
    (side,) = json.loads(done.stdout)["sides"]
    assert [part["name"] for part in side["phases"]] == [
        "before",
        "host 0 eni1 down",
        "host 0 eni1 down repaired",
        "host 1 eni1 blackhole",
    ]
    for part, wanted in zip(side["phases"], (0.0, 0.3, 0.6, 0.8), strict=True):
        assert part["from_s"] >= wanted
    assert side["wrong"] == 0


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_flow_of_tcp_beside_it() -> None:
    done = run_harpctl("lab", "bench", "--cap", "500", "--beside-tcp", "--time", "3", "--no-check", "--json")
    assert done.exit_code == 0, done.output
    (side,) = json.loads(done.stdout)["sides"]
    assert side["tcp_gbps"] > 0
    assert side["tcp_gbps"] + side["tcp_beside_gbps"] < 0.6
