# SPDX-License-Identifier: Apache-2.0
"""harp-perf by the clock: what arrived when, on which connection, and what stopped it; and incast."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import Ended, Perf, wait_for_end

OK, USAGE, PLUGIN = 0, 2, 3
SECONDS = 0.5
WINDOW = ("--sizes", "64K", "--time", SECONDS, "--interval-ms", 10, "--json", "-")


def window_of(ended: Ended) -> dict[str, Any]:
    row = ended.json()["results"][0]
    window: dict[str, Any] = row["window"]
    assert len(window["samples"]) == SECONDS * 100
    return window


@pytest.mark.parametrize("mode", ["stream", "alltoall", "incast"])
def test_samples_are_the_bytes_of_the_connections(perf: Perf, mode: str) -> None:
    ended = perf.run("--mode", mode, "--nranks", 3, "--connections", 2, *WINDOW)
    assert ended.code == OK, ended.err
    row, window = ended.json()["results"][0], window_of(ended)
    pairs = {"stream": [(0, 1)], "incast": [(1, 0), (2, 0)]}
    wanted = pairs.get(mode, [(a, b) for b in range(3) for a in range(3) if a != b])
    seen = [(c["from"], c["to"], c["index"]) for c in window["connections"]]
    assert sorted(seen) == sorted((*pair, index) for pair in wanted for index in range(2))
    assert all(c["bytes"] > 0 for c in window["connections"])
    moved = sum(c["bytes"] for c in window["connections"])
    # Only the bytes that arrive in the last turn of the loop, as the clock runs out, may be in no sample.
    assert moved - 64 * 1024 * len(seen) <= sum(window["samples"]) <= moved
    assert row["messages"] == moved // 65536
    assert row["wrong"] == 0
    assert (window["failures"], window["undelivered"]) == ([], 0)
    assert row["seconds"] == pytest.approx(SECONDS)


def test_the_start_is_written_to_standard_error(perf: Perf) -> None:
    ended = perf.run("--mode", "stream", *WINDOW)
    start_ns = int(ended.err.split("window starts at ")[1].split()[0])
    assert 0 <= window_of(ended)["start_ns"] - start_ns < 1_000_000_000


LONG = ("--mode", "bidir", "--sizes", "64K", "--time", 100, "--interval-ms", 10, "--json", "-")


def wait_in_window(child: subprocess.Popen[str]) -> None:
    """Let some time of the window pass; the process is rank 0 or has it."""
    assert child.stderr
    assert any("window starts at" in line for line in child.stderr)
    time.sleep(SECONDS)


def check_ended_early(ended: Ended) -> None:
    assert ended.code == OK, ended.err
    (row,) = ended.json()["results"]
    window = row["window"]
    assert (window["failures"], window["undelivered"], row["wrong"]) == ([], 0, 0)
    assert row["seconds"] == pytest.approx(len(window["samples"]) * 0.01)
    assert 0.2 <= row["seconds"] < 60
    assert sum(window["samples"][len(window["samples"]) // 2 :]) > 0  # they end with the window


def test_a_signal_ends_it(perf: Perf) -> None:
    children = perf.start_ranks(2, *LONG)
    wait_in_window(children[0])
    for child in children:
        child.send_signal(signal.SIGUSR1)
    first, second = (wait_for_end(child) for child in children)
    check_ended_early(first)
    assert second.code == OK


def test_a_signal_to_who_starts_the_ranks_ends_it(perf: Perf) -> None:
    child = perf.start(*LONG)
    wait_in_window(child)
    child.send_signal(signal.SIGUSR1)
    check_ended_early(wait_for_end(child))


def test_a_plugin_that_fails_is_reported_with_what_arrived(perf: Perf) -> None:
    ended = perf.run("--mode", "stream", *WINDOW, env={"FAKENET_FAIL": "100"})
    assert ended.code == PLUGIN
    window = window_of(ended)
    assert [failure["rank"] for failure in window["failures"]] == [0]
    assert "isend" in window["failures"][0]["text"]
    assert 0 < sum(window["samples"]) <= 100 * 65536
    assert sum(window["samples"][-5:]) == 0


def test_a_plugin_that_stalls_is_reported(perf: Perf) -> None:
    ended = perf.run("--mode", "stream", *WINDOW, env={"FAKENET_HANG": "100"})
    window = window_of(ended)
    assert 0 < sum(window["samples"]) <= 100 * 65536
    assert window["failures"] == []


def test_wrong_bytes_are_counted_in_a_window(perf: Perf) -> None:
    ended = perf.run("--mode", "incast", "--nranks", 3, *WINDOW, env={"FAKENET_FLIP": "50"})
    assert ended.json()["results"][0]["wrong"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sizes", "8,16"), "one size"),
        (("--sizes", "8", "--iters", 5), "takes --time"),
        (("--sizes", "8", "--time", 3600), "more than 20000 samples"),
        (("--sizes", "8", "--nranks", 64, "--connections", 256), "at most 32 connections"),
        (("--sizes", "8", "--mode", "pingpong"), "not for pingpong"),
    ],
)
def test_windows_that_cannot_be(perf: Perf, words: tuple[object, ...], message: str) -> None:
    ended = perf.run("--mode", "stream", "--interval-ms", 1, *words)
    assert ended.code == USAGE
    assert message in ended.err


def test_incast_times_each_message(perf: Perf) -> None:
    args = ("--mode", "incast", "--nranks", 4, "--sizes", "4,64K", "--iters", 40, "--json", "-")
    start = time.monotonic()
    ended = perf.run(*args)
    taken_s = time.monotonic() - start
    assert ended.code == OK, ended.err
    short, long = ended.json()["results"]
    assert short["latency_us"] is None  # there is no room for the time
    assert long["messages"] == 3 * 40
    assert long["wrong"] == 0
    assert 0 < long["latency_us"]["min"] <= long["latency_us"]["p50"] <= long["latency_us"]["max"]
    assert long["latency_us"]["max"] < taken_s * 1e6
    # All that rank 0 received, in the time that it took.
    assert long["busbw_gbps"] == pytest.approx(120 * 65536 * 8 / long["seconds"] / 1e9, rel=1e-3)


def test_ranks_meet_at_a_path(perf: Perf, tmp_path: Path) -> None:
    meet = tmp_path / "meet"
    args = ("--mode", "stream", "--sizes", 8, "--iters", 5, "--nranks", 2, "--rendezvous", meet)
    children = [perf.start(*args, "--rank", rank) for rank in range(2)]
    assert [child.wait(timeout=60) for child in children] == [OK, OK]
    assert not meet.exists()
    assert perf.run(*args[:-1], "/" + "x" * 200, "--rank", 0).code == USAGE
