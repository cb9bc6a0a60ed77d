# SPDX-License-Identifier: Apache-2.0
"""The release run: slices, going on where it stopped, failures, its table; and that its own programs find."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import native
from tests.release.__main__ import main
from tests.release.items import all_items
from tests.release.record import (
    Outcome,
    Record,
    count_text,
    duration_text,
    load_record,
    record_table,
    save_record,
)
from tests.release.runner import FAILURES_MAX, STRIDE, Runner, Unavailable

SLICE_S = 100.0


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Steps:
    """An item that does one thing a second."""

    clock: Clock
    name: str = "steps"
    what: str = "steps that are taken"
    unit: str = "steps"
    target: int = 1000
    build_s: float = 0.0
    before: Callable[[], None] = lambda: None
    starts: list[int] = field(default_factory=list)

    def prepare(self) -> None:
        self.clock.now_s += self.build_s

    def run(self, start: int, seconds: float) -> Outcome:
        self.starts.append(start)
        self.clock.now_s += seconds
        self.before()
        return Outcome(int(seconds), {"feet": 2 * int(seconds)}, {"longest": float(start)})


def _make_runner(file: Path, *items: Steps, commit: str = "a", keep: bool = False) -> Runner:
    record = load_record(file, commit, keep=keep)
    return Runner(items, record, file, SLICE_S, lambda _line: None, items[0].clock)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file, clock = tmp_path / "record.json", Clock()
    first, second = Steps(clock), Steps(clock)
    assert _make_runner(file, first).run(250)
    assert first.starts == [0, 100, 200]
    assert load_record(file, "a", keep=False).of("steps").done == 250
    assert _make_runner(file, second).run(None)
    assert second.starts[0] == 250
    progress = load_record(file, "a", keep=False).of("steps")
    assert (progress.done, progress.seconds, progress.sums, progress.most) == (
        *(1050, 1050.0),
        *({"feet": 2100}, {"longest": 950.0}),
    )
    assert _make_runner(file, Steps(clock)).run(None), "nothing is left to do"


def test_what_it_takes_to_build_does_not_count(tmp_path: Path) -> None:
    file, clock = tmp_path / "record.json", Clock()
    _make_runner(file, Steps(clock, target=100, build_s=1000)).run(None)
    assert load_record(file, "a", keep=False).of("steps").seconds == SLICE_S


def test_who_is_least_far_is_next(tmp_path: Path) -> None:
    clock = Clock()
    near, far = Steps(clock, "near", target=400), Steps(clock, "far", target=4000)
    _make_runner(tmp_path / "record.json", near, far).run(600)
    assert (len(near.starts), len(far.starts)) == (1, 5)


@pytest.mark.parametrize("keep", [False, True])
def test_another_commit_begins_anew_unless_asked(tmp_path: Path, keep: bool) -> None:
    file, clock = tmp_path / "record.json", Clock()
    _make_runner(file, Steps(clock)).run(100)
    item = Steps(clock)
    _make_runner(file, item, commit="b", keep=keep).run(100)
    assert item.starts == [100 if keep else 0]
    assert (tmp_path / "record-a.json").is_file() is not keep


def test_a_slice_that_is_stopped_does_not_count(tmp_path: Path) -> None:
    file, clock = tmp_path / "record.json", Clock()
    item = Steps(clock)

    def stop() -> None:
        if len(item.starts) == 2:
            raise KeyboardInterrupt

    item.before = stop
    with pytest.raises(KeyboardInterrupt):
        _make_runner(file, item).run(None)
    assert load_record(file, "a", keep=False).of("steps").done == 100


def test_a_failure_is_kept_and_what_failed_is_not_done_again(tmp_path: Path) -> None:
    file, clock = tmp_path / "record.json", Clock()
    item, other = Steps(clock), Steps(clock, "other", target=300)

    def fail() -> None:
        raise AssertionError("wrong byte")

    item.before = fail
    assert not _make_runner(file, item, other).run(None)
    assert item.starts == [STRIDE * i for i in range(FAILURES_MAX)]
    record = load_record(file, "a", keep=False)
    assert "wrong byte" in record.of("steps").failures[0].text
    assert (record.of("steps").done, record.of("other").done) == (0, 300)
    item.before = lambda: None
    assert not _make_runner(file, item).run(100), "what failed once has failed"


def test_what_cannot_run_here_is_left_out_and_said(tmp_path: Path) -> None:
    file, clock = tmp_path / "record.json", Clock()
    item = Steps(clock)

    def lack() -> None:
        raise Unavailable("no root")

    item.before = lack
    assert _make_runner(file, item).run(None)
    record = load_record(file, "a", keep=False)
    assert "not run: no root" in record_table(record, [item])
    item.before = lambda: None
    _make_runner(file, item).run(100)
    assert "no root" not in record_table(load_record(file, "a", keep=False), [item])


def test_table(tmp_path: Path) -> None:
    record = Record("c0ffee", "then", "then")
    item = Steps(Clock(), target=4_000_000)
    record.of("steps").add(Outcome(1_234_567, {"feet": 3}, {"longest": 2.0}), 7200)
    save_record(tmp_path / "record.json", record)
    text = record_table(record, [item])
    assert "Commit c0ffee" in text
    assert "| steps that are taken | 1.23 M of 4.00 M steps, 30.9 % | 2.0 h | 3 feet; longest 2 |" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (12_345, "12.3 k"), (999_999, "1.00 M"), (10**9, "1.00 G")],
)
def test_count_text(count: int, text: str) -> None:
    assert count_text(count) == text


def test_duration_text() -> None:
    assert [duration_text(seconds) for seconds in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]


def test_items_have_names_of_their_own(tmp_path: Path) -> None:
    items = all_items(tmp_path)
    assert len({item.name for item in items}) == len(items)
    assert sum(item.target for item in items if item.name in {f"fuzz-{t}" for t in native.fuzz_targets()}) >= 10**9


def test_the_document_names_each_item(tmp_path: Path, root: Path) -> None:
    text = " ".join((root / "docs/reference/reliability.md").read_text().split())
    assert [item.what for item in all_items(tmp_path) if item.what not in text] == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--folder", str(tmp_path), "--table"]) == 0
    assert "seeds of the simulation" in capsys.readouterr().out
    assert main(["--folder", str(tmp_path), "--only", "nonsense"]) == 2


@pytest.mark.parametrize("carrier", ["udp", "tcp"])
def test_damage_is_stopped_and_would_be_found(carrier: str) -> None:
    built = native.run_make("build/damage")
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    words = [str(native.PLUGIN_DIR / "build/damage"), carrier, "1", "0.1"]
    passed = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert passed.returncode == 0, passed.stderr
    assert "damaged packets of" in passed.stdout
    found = subprocess.run([*words, "taken"], capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 1, found.stdout
    assert "WRONG: not " in found.stderr
