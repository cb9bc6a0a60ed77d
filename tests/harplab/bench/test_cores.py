# SPDX-License-Identifier: Apache-2.0
"""Cores that move apart while the bench runs: which runs are made again, and what is said about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.cli import app
from harpctl.errors import ExitCode, HarpError
from harplab.bench import cores, options
from harplab.bench.cores import CoreFigures, CoreWatch, parse_cores, read_latency_ns
from harplab.perf.measure import START_UPS, TRIALS
from tests.harplab.conftest import write_perf

NEAR, FAR, NEARER = 60.0, 350.0, 20.0


def watch_of(readings: Iterable[float], again_max: int = 9, waits_max: int = 0) -> CoreWatch:
    """Make a watch that reads these after it has learned that NEAR is the least."""
    left = iter([NEAR] * cores.FIRST_READINGS + list(readings))
    watch = CoreWatch((0, 1), lambda: next(left), again_max, waits_max, lambda _seconds: None)
    watch.learn_least()
    return watch


def take_runs(watch: CoreWatch, runs: int, wrong: Iterable[int] = ()) -> list[int]:
    """Take runs, which return their number among all that were made; return what was kept."""
    made = iter(range(99))
    return [watch.take(lambda: next(made), lambda number: number in wrong) for _ in range(runs)]


def test_runs_beside_near_cores_are_kept() -> None:
    watch = watch_of([NEAR, NEAR, 2 * NEAR, NEAR + 5])
    assert take_runs(watch, 2) == [0, 1]
    assert watch.figures() == CoreFigures((0, 1), NEAR, NEAR, 2 * NEAR, 0, 0)
    assert watch.notes() == [
        "ranks on cores 0,1; 0 run(s) made again",
        "a cache line from core 0 to 1 and back: 60 to 120 ns beside the runs",
    ]


@pytest.mark.parametrize("beside", [(FAR, NEAR), (NEAR, FAR), (FAR, FAR), (NEAR, 2 * NEAR + 1)])
def test_a_run_beside_far_cores_is_made_again_in_its_place(beside: tuple[float, float]) -> None:
    watch = watch_of([NEAR, NEAR, *beside, NEAR, NEAR, NEAR, NEAR])
    assert take_runs(watch, 3) == [0, 2, 3]
    assert watch.figures() == CoreFigures((0, 1), NEAR, NEAR, NEAR, 1, 0)


def test_how_often_runs_are_made_again_is_bounded() -> None:
    watch = watch_of([FAR] * 12, again_max=3)
    assert take_runs(watch, 3) == [3, 4, 5]
    assert watch.figures() == CoreFigures((0, 1), NEAR, FAR, FAR, 3, 3)
    assert watch.notes()[2:] == [
        "3 run(s) kept beside more than 2 times the least, 60 ns: don't compare them with the others"
    ]


def test_a_run_waits_until_the_cores_are_near() -> None:
    watch = watch_of([FAR, FAR, NEAR, NEAR, FAR, NEAR, NEAR], waits_max=3)
    assert take_runs(watch, 2) == [0, 1]
    assert watch.figures() == CoreFigures((0, 1), NEAR, NEAR, NEAR, 0, 0)


def test_how_long_runs_wait_is_bounded() -> None:
    watch = watch_of([FAR] * 5, again_max=0, waits_max=2)
    assert take_runs(watch, 1) == [0]
    assert watch.figures() == CoreFigures((0, 1), NEAR, FAR, FAR, 0, 1)


def test_a_run_with_wrong_data_is_not_made_again() -> None:
    watch = watch_of([FAR, FAR, FAR, NEAR, NEAR, NEAR])
    assert take_runs(watch, 2, wrong=[0]) == [0, 2]
    assert watch.figures() == CoreFigures((0, 1), NEAR, NEAR, FAR, 1, 1)


def test_runs_kept_before_the_cores_came_nearer_are_counted() -> None:
    watch = watch_of([NEAR, NEAR, NEAR, NEARER, NEARER, NEARER])
    assert take_runs(watch, 2) == [0, 2]
    assert watch.figures() == CoreFigures((0, 1), NEARER, NEARER, NEAR, 1, 1)


def test_the_least_is_read_over_a_while() -> None:
    pauses: list[float] = []
    readings = iter([FAR] * (cores.FIRST_READINGS - 1) + [NEAR, FAR, NEAR, NEAR, NEAR])
    watch = CoreWatch((0, 1), lambda: next(readings), 1, pause=pauses.append)
    watch.learn_least()
    assert sum(pauses) <= 2
    assert take_runs(watch, 1) == [1]


def test_cores_as_people_write_them() -> None:
    assert parse_cores("3, 1", [1, 2, 3]) == (3, 1)
    for text in ("", "0", "0,", "0,0", "0,1,x", "0,1,1", "-1,0"):
        with pytest.raises(HarpError, match="at least two different cores") as caught:
            parse_cores(text, [0, 1])
        assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(HarpError, match="Core 2 is not available") as caught:
        parse_cores("0,2", [0, 1])
    assert "0,1" in caught.value.hint


def test_latency_that_cannot_be_read(tmp_path: Path) -> None:
    for code, reason in (
        ("import sys; sys.exit('harp-perf: core 1 is gone')", "core 1 is gone"),
        ("import sys; sys.exit(7)", "exit code 7"),
        ("print('near')", "could not convert"),
    ):
        with pytest.raises(HarpError, match=f"cores 0 and 1 can't be measured: .*{reason}"):
            read_latency_ns(write_perf(tmp_path, code), (0, 1))
    with pytest.raises(HarpError, match="No such file"):
        read_latency_ns(tmp_path / "none", (0, 1))


# ---- the command ----


def run_bench(*words: str) -> Result:
    return CliRunner().invoke(app, ["bench", *words])


@pytest.fixture
def base(fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name a harp-perf that reads NEAR from two cores, which every rank's `taskset` accepts."""
    monkeypatch.setattr(cores, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(cores, "WAIT_S", 0.0)
    monkeypatch.setattr(options, "available_cores", lambda: [0, 1])
    monkeypatch.setattr(options, "built_file", lambda _name: fake_perf)
    monkeypatch.setattr("harplab.bench.places.pinned_words", lambda _cores, _rank: [])
    set_readings(fake_perf, monkeypatch, [NEAR])
    words = ["--loopback", "--plugin", str(fake_plugin), "--time", "0.01"]
    return [*words, "--sizes", "8", "--cores", "0,1"]


def set_readings(perf: Path, monkeypatch: pytest.MonkeyPatch, readings: list[float]) -> None:
    """Let the fake harp-perf print these, then the last for ever."""
    file = perf.with_name("readings")
    file.write_text(" ".join(map(str, readings)))
    monkeypatch.setenv("FAKE_LATENCIES", str(file))


def test_the_measured_runs_are_watched_and_no_others(
    base: list[str], fake_perf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_LOG", str(log))
    set_readings(fake_perf, monkeypatch, [NEAR] * cores.FIRST_READINGS + [NEAR, FAR, NEAR])
    done = run_bench(*base, "--runs", "2")
    assert done.exit_code == 0, done.output
    calls = [json.loads(line)["argv"] for line in log.read_text().splitlines()]
    words = {"--core-latency": "latency", "--iters": "run", "--time": "trial"}
    order = [
        next(what for word, what in words.items() if word in argv) for argv in calls if argv_rank(argv) != "1"
    ]
    again, kept = ["latency", "run", "latency"], ["latency", "run", "latency"]
    before = ["latency"] * cores.FIRST_READINGS + ["run"] * START_UPS + ["trial"] * TRIALS
    assert order == [*before, *again, *kept, *kept]
    assert calls[0] == ["--core-latency", "0,1"]
    assert "# ranks on cores 0,1; 1 run(s) made again" in done.stdout.splitlines()
    set_readings(fake_perf, monkeypatch, [NEAR] * cores.FIRST_READINGS + [NEAR, FAR, NEAR])
    written = json.loads(run_bench(*base, "--runs", "2", "--json").stdout)
    assert written["core_latency"] == {
        "cores": [0, 1],
        "least_ns": NEAR,
        "beside_min_ns": NEAR,
        "beside_max_ns": NEAR,
        "made_again": 1,
        "kept_apart": 0,
    }


def argv_rank(argv: list[str]) -> str:
    return argv[argv.index("--rank") + 1] if "--rank" in argv else ""


def test_a_series_beside_far_cores_ends(base: list[str], fake_perf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_readings(fake_perf, monkeypatch, [NEAR] * cores.FIRST_READINGS + [FAR])
    done = run_bench(*base, "--runs", "2", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["core_latency"]
    assert (found["made_again"], found["kept_apart"]) == (2 * cores.AGAIN_PER_RUN, 2)


def test_wrong_data_beside_far_cores_is_an_error(
    base: list[str], fake_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_readings(fake_perf, monkeypatch, [NEAR] * cores.FIRST_READINGS + [FAR])
    done = run_bench(*base, "--runs", "1", "--env", "FAKE_WRONG=4")
    assert done.exit_code == ExitCode.WRONG_DATA
    assert "ranks on cores 0,1; 0 run(s) made again" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "a,b"], "--cores does not take --hosts."),
        (["--by-clock"], "--cores does not take a run by the clock."),
        (["--cores", "0"], "--cores takes at least two different cores, not '0'."),
        (["--cores", "0,7"], "Core 7 is not available to this process."),
    ],
)
def test_what_cores_are_not_for(base: list[str], words: list[str], message: str) -> None:
    done = run_bench(*base, *words)
    assert done.exit_code == ExitCode.USAGE
    assert message in done.stderr


def test_without_cores_nothing_is_read(base: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    done = run_bench(*base[:-2], "--json")
    assert json.loads(done.stdout)["core_latency"] is None
    assert "--core-latency" not in (tmp_path / "log").read_text()
