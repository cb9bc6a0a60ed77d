# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab suite`, with programs that measure nothing; the last test in a lab."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.cli import app
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.plugin_files import NAME
from harplab.bench import options, suite_command
from harplab.bench.cores import CoreFigures, Watch, near_cores
from harplab.bench.places import LoopbackHosts
from harplab.bench.suite import (
    SUITE,
    FailureWork,
    NcclWork,
    PerfWork,
    Target,
    chosen_rows,
    row_id,
    size_text,
)
from harplab.bench.suite_command import SuiteOptions, run_suite
from harplab.bench.suite_file import SuiteFile, made_here, open_file, write_file
from harplab.bench.suite_report import BEGIN, END, find_shortfalls, title_text, write_markdown, write_results
from harplab.bench.suite_run import Bench, Effort, SuiteRow, run_work, steps_of
from harplab.lab.spec import LabSpec
from harplab.perf.hosts import Hosts, Program
from harplab.perf.job import Mode
from tests.harplab.bench.test_nccl import FAKE
from tests.harplab.conftest import write_perf

STREAM = PerfWork("Streams", "stream", ((4096, Target(speedup=3.5)), (1 << 20, Target(1.3, cpu=0.85))))
TRIPS = PerfWork("Trips", "half round trip", ((8, Target(speedup=1.54)),), mode=Mode.PINGPONG)
CARRIERS = PerfWork("Carriers", "stream", ((4096, Target(speedup=0.97)),), drivers=("udp", "tcp"))
REDUCE = NcclWork("NCCL", "allreduce", "allreduce", (8, 64), Target(speedup=1.22, slowest=1.0))
LOST = FailureWork(
    "Failure", "lost", LabSpec(enis=4), "eni0:down@0.1", Target(pause_ms=100, kept=0.7), seconds=0.3
)
WORKS = (STREAM, TRIPS, CARRIERS, REDUCE, LOST)


def run_harpctl(*words: str) -> Result:
    return CliRunner().invoke(app, ["lab", "suite", *words])


@contextlib.contextmanager
def loopback(spec: LabSpec) -> Iterator[tuple[Hosts, tuple[str, ...]]]:
    yield LoopbackHosts(spec.hosts), ()


@pytest.fixture
def make_bench(fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Return a function that makes a quick bench: HARP runs at 30 and Socket at 20 Gbit/s, or as is given."""
    folder = fake_perf.parent / "nccl"
    folder.mkdir()
    nccl = write_perf(folder, FAKE)
    monkeypatch.setenv("FAKE_CALLS", str(folder / "calls"))

    def make(ours: dict[str, str] | None = None, theirs: dict[str, str] | None = None) -> Bench:
        return Bench(
            harp=Program(fake_perf, fake_plugin, {"FAKE_GBPS": "30", "FAKE_US": "5", **(ours or {})}),
            socket=Program(fake_perf, fake_plugin, {"FAKE_GBPS": "20", **(theirs or {})}),
            nccl_program=nccl,
            nccl_library=fake_plugin,
            cores=(0, 1),
            open_place=loopback,
            effort=Effort(is_quick=True),
        )

    return make


def rows_of_work(bench: Bench, work: PerfWork | NcclWork | FailureWork) -> list[SuiteRow]:
    steps: list[str] = []
    rows = run_work(bench, work, work.rows(), steps.append)
    assert len(steps) == steps_of(bench, work, work.rows())
    return rows


# ---- the rows as data ----


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row_id(work, name) for work in SUITE for name in work.rows()]
    assert len(set(names)) == len(names)
    for work in SUITE:
        work.lab.check()


def test_all_kinds_of_work_have_rows() -> None:
    """What docs/reference/benchmarks.md promises."""
    works = {type(work) for work in SUITE}
    assert works == {PerfWork, NcclWork, FailureWork}
    streams = [work for work in SUITE if isinstance(work, PerfWork)]
    assert {work.mode for work in streams} == {Mode.STREAM, Mode.PINGPONG, Mode.BIDIR}
    assert {work.op for work in SUITE if isinstance(work, NcclWork)} == {"allreduce", "alltoall", "sendrecv"}
    assert {work.lab.hosts for work in SUITE} == {2, 4}
    for wanted in ("enis", "cap_mbps", "flow_cap_mbps", "loss_share"):
        assert any(getattr(work.lab, wanted) != getattr(LabSpec(), wanted) for work in SUITE), wanted


def test_rows_are_chosen_by_group_or_name() -> None:
    assert [names for _work, names in chosen_rows("STREAM, 1 m", WORKS)] == [["stream, 1 MB"]]
    assert [work for work, _names in chosen_rows("trips:", WORKS)] == [TRIPS]
    assert chosen_rows("no such row", WORKS) == []
    assert len(chosen_rows(None, WORKS)) == len(WORKS)


def test_sizes_as_in_the_table() -> None:
    assert [size_text(size) for size in (8, 512, 4096, 1 << 20)] == ["8 B", "512 B", "4 KB", "1 MB"]


# ---- the runs ----


def test_a_rate_is_the_faster_the_higher(make_bench: Callable[..., Bench]) -> None:
    small, large = rows_of_work(make_bench(), STREAM)
    assert (small.name, large.name) == ("stream, 4 KB", "stream, 1 MB")
    assert (small.ours, small.theirs, small.unit) == (30, 20, "Gbit/s")
    assert (small.speedup, small.low, small.high) == (1.5, 1.5, 1.5)
    assert (small.target, large.target) == (STREAM.targets[0][1], STREAM.targets[1][1])


def test_a_time_is_the_faster_the_lower(make_bench: Callable[..., Bench]) -> None:
    (row,) = rows_of_work(make_bench(), TRIPS)
    assert (row.theirs, row.unit) == (1.0, "µs")
    assert row.ours == pytest.approx(20 / 30)
    assert row.speedup == pytest.approx(1.5)


def test_beside_the_better_carrier(make_bench: Callable[..., Bench], fake_perf: Path) -> None:
    """Over tcp the fake is twice as fast."""
    text = fake_perf.read_text()
    line = 'rate = float(os.environ.get("FAKE_GBPS", "10"))'
    assert line in text
    twice = f'{line} * (2 if os.environ.get("HARP_DRIVER") == "tcp" else 1)'
    fake_perf.write_text(text.replace(line, twice))
    (row,) = rows_of_work(make_bench(), CARRIERS)
    assert (row.beside, row.ours, row.theirs, row.speedup) == ("tcp", 30, 60, 0.5)


def test_real_nccl_has_the_mean_and_the_slowest_size(make_bench: Callable[..., Bench]) -> None:
    (row,) = rows_of_work(make_bench({"FAKE_US": "5"}), REDUCE)
    assert row.speedup == pytest.approx(2.0)  # the fake's Socket takes 10
    assert [(size.bytes, size.speedup) for size in row.sizes] == [(8, 2.0), (64, 2.0)]
    assert (row.ours, row.theirs, row.cpu) == (None, None, None)


def test_wrong_data_of_real_nccl_is_an_error(make_bench: Callable[..., Bench]) -> None:
    with pytest.raises(HarpError, match="elements are wrong") as caught:
        rows_of_work(make_bench({"FAKE_WRONG": "3", "FAKE_CODE": "4"}), REDUCE)
    assert caught.value.exit_code is ExitCode.WRONG_DATA


def test_a_failure_has_the_pause_and_what_is_left(make_bench: Callable[..., Bench]) -> None:
    (row,) = rows_of_work(make_bench(theirs={"FAKE_STALL": "1"}), LOST)
    assert (row.speedup, row.theirs) == (None, None)  # Socket's stream ended
    assert row.kept == pytest.approx(1.0)
    assert (row.ours, row.unit) == (0, "ms")
    with pytest.raises(HarpError, match="HARP failed"):
        rows_of_work(make_bench({"FAKE_STALL": "1"}), LOST)


def test_a_full_run_has_the_runs_and_times_of_the_work() -> None:
    full, quick = Effort(), Effort(is_quick=True)
    assert (full.runs(7), full.time_s(0.3), full.settle_s(4)) == (7, 0.3, 4)
    assert quick.runs(7) == 1
    assert quick.time_s(0.3) < 0.1
    assert quick.settle_s(4) < 1
    assert quick.start_ups() >= 2  # the first one does not count


# ---- the cores ----


def test_the_nearest_core_that_is_no_thread_of_the_first() -> None:
    latency = {1: 20.0, 2: 300.0, 3: 60.0}

    def choose(cores: Sequence[int], siblings: set[int]) -> tuple[int, ...]:
        return near_cores(cores, 4, lambda _first, core: latency[core], lambda _core: siblings)

    assert choose([0, 1, 2, 3], {0, 1}) == (0, 3, 2)
    assert choose([0, 1, 2, 3], {0}) == (0, 1, 2, 3)
    assert choose([0, 1], {0, 1}) == (0, 1)
    with pytest.raises(HarpError, match="take two cores"):
        choose([0], {0})


# ---- the command ----


class Recorder(Watch):
    """Counts the runs that it takes."""

    def figures(self) -> CoreFigures:
        return CoreFigures((0, 1), 50.0, 55.0, 90.0, 2, 1)


@dataclasses.dataclass
class Suite:
    """Runs some works as the command does, and keeps how often each was measured."""

    make: Callable[..., Bench]
    file: Path
    measured: list[str]
    ours: dict[str, str]
    works_before_interrupt: int | None = None

    def run(self, **options: object) -> None:
        given = {"is_quick": True, "only": None, "results": self.file, "markdown": None, "plot": None}
        chosen = SuiteOptions(**{**given, **options})  # type: ignore[arg-type]
        run_suite(self.make(self.ours), chosen, lambda _runs: Recorder(), self._progress)

    @contextlib.contextmanager
    def _progress(self, _total: int) -> Iterator[Callable[[str], None]]:
        if len(self.measured) == self.works_before_interrupt:
            raise KeyboardInterrupt
        self.measured.append("work")
        yield lambda _text: None

    def read(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.file.read_text())
        return found


@pytest.fixture
def suite(make_bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setattr(suite_command, "SUITE", WORKS)
    monkeypatch.setattr(suite_command, "chosen_rows", lambda only: chosen_rows(only, WORKS))
    return Suite(make_bench, tmp_path / "out.json", [], {})


def test_it_goes_on_where_it_ended(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.run(only="stream, 4 KB")
    assert [row["name"] for row in suite.read()["rows"]] == ["stream, 4 KB"] * 2  # type: ignore[attr-defined]
    assert len(suite.measured) == 2
    suite.run()
    rows = suite.read()["rows"]
    assert len(rows) == sum(len(work.rows()) for work in WORKS)  # type: ignore[arg-type]
    assert len(suite.measured) == 2 + 4  # the other size, and three works
    suite.run()
    assert len(suite.measured) == 6
    assert suite.read()["rows"] == rows
    shown = capsys.readouterr()
    assert "| stream, 4 KB | 30.00 Gbit/s | 20.00 Gbit/s | **1.50** (" in shown.out
    assert "Streams: stream, 4 KB: 1.50 (1.50 to 1.50)" in shown.err
    assert "rows miss their targets" in shown.err


def test_broken_off(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.works_before_interrupt = 1
    with pytest.raises(KeyboardInterrupt):
        suite.run()
    assert f"goes on from {suite.file}" in capsys.readouterr().err.replace("\n", "")
    assert len(suite.read()["rows"]) == 2  # type: ignore[arg-type]


def test_rows_of_another_build_are_kept(
    suite: Suite, make_bench: Callable[..., Bench], capsys: pytest.CaptureFixture[str]
) -> None:
    suite.run(only="trips")
    before = suite.file.read_bytes()
    make_bench().harp.plugin.write_bytes(b"another build")
    with pytest.raises(HarpError, match="rows of another plugin"):
        suite.run()
    suite.run(only="trips")
    assert "it has all rows, so nothing is measured" in capsys.readouterr().err.replace("\n", " ")
    assert suite.file.read_bytes() == before


def test_another_file_is_no_suite(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    with pytest.raises(HarpError, match="not a JSON file of"):
        open_file(file, made_here(file, "2.32.3", (0, 1), is_quick=False))


def test_a_work_that_fails_does_not_end_the_others(suite: Suite) -> None:
    suite.ours = {"FAKE_STALL": "1"}
    with pytest.raises(HarpError, match="1 works could not be measured") as caught:
        suite.run()
    assert "Failure: lost" in caught.value.hint
    assert len(suite.read()["rows"]) == 5  # type: ignore[arg-type]


def test_all_outputs(suite: Suite, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, picture = tmp_path / "page.md", tmp_path / "page.png"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    suite.run(is_quick=False, markdown=page, plot=picture)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "**Streams**" in text
    assert "55 to 90 ns" in text.replace("\n", " ")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == ""
    suite.run(is_quick=False, results=None, as_json=True, only="trips")
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["half round trip, 8 B"]


def test_markdown_replaces_no_other_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a document\n")
    with pytest.raises(HarpError, match="no place for the table"):
        write_markdown(page, "table")
    assert page.read_text() == "a document\n"


def test_targets_are_judged_as_figures_are_shown() -> None:
    def missed(target: Target, **figures: float) -> list[str]:
        row = SuiteRow(group="g", name="n", target=target, runs=1, time="", **figures)  # type: ignore[arg-type]
        return find_shortfalls(row)

    assert missed(Target(speedup=1.3), speedup=1.296) == []
    assert missed(Target(speedup=1.3), speedup=1.29) == ["speed-up 1.29, not 1.30"]
    assert missed(Target(cpu=0.85), cpu=0.9) == ["CPU 0.90, not 0.85"]
    assert missed(Target(slowest=1), speedup=1.5, low=0.9) == ["slowest size 0.90, not 1.00"]
    assert missed(Target(pause_ms=100, kept=0.7), ours=101, kept=0.5) == [
        "rate kept 0.50, not 0.70",
        "pause in ms 101.00, not 100.00",
    ]
    assert missed(Target(), speedup=0.1) == []


def test_markdown_marks_and_counts_what_is_missed(tmp_path: Path) -> None:
    made = made_here(Path(__file__), "2.32.3", (0, 1), is_quick=True)
    row = SuiteRow(
        group="Streams",
        name="stream, 4 KB",
        target=Target(speedup=3.5),
        unit="Gbit/s",
        ours=3.0,
        theirs=2.0,
        speedup=1.5,
        low=1.0,
        high=2.0,
        runs=1,
        time="2026-01-01T00:00:00Z",
    )
    content = SuiteFile(made, [row])
    write_file(tmp_path / "x.json", content)
    assert open_file(tmp_path / "x.json", made) == content
    text = write_results(content, WORKS)
    assert "Short, single runs" in " ".join(text.split())
    assert "| stream, 4 KB | 3.00 Gbit/s | 2.00 Gbit/s | **1.50** (1.00 to 2.00) |  | ≥ 3.50: missed |" in text
    assert "Missed, of 1 rows with a target: 1." in text
    assert "Rows of the suite that were not measured: 5." in text
    assert "Other work" not in text
    assert title_text(content).endswith("short, single runs")
    content.loads = [0.2, 7.5]
    assert title_text(content).endswith("short, single runs, beside other work: load 7.5")
    assert "Other work was on the machine: a load of up to 7.5." in " ".join(write_results(content, WORKS).split())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--only", "no such row"], 2, "No row has 'no such row' in its name."),
        (["--plot", "x.doc"], 2, "not the name of a plot file"),
    ],
)
def test_wrong_usage(words: list[str], code: int, message: str) -> None:
    done = run_harpctl(*words)
    assert done.exit_code == code, done.output
    assert message in done.output


def test_defaults_are_measured(fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "built_file", {"harp-perf": fake_perf, NAME: fake_plugin}.__getitem__)
    monkeypatch.setenv("HARP_PATHS", "8")
    done = run_harpctl("--cores", "0,1")
    assert done.exit_code == ExitCode.USAGE, done.output
    assert "The suite measures defaults, and HARP_PATHS is set." in done.output


@pytest.mark.lab
def test_in_a_lab(plugin_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HARP's tcp takes the place of NCCL's sockets, which would have to be fetched."""
    del plugin_file

    def plugin_as_baseline() -> tuple[Path, dict[str, str]]:
        plugin = options.find_program(None, "libnccl-net.so")
        return plugin, {"NCCL_LIB": str(plugin), "HARP_DRIVER": "tcp"}

    monkeypatch.setattr(suite_command, "socket_baseline", plugin_as_baseline)
    file = tmp_path / "out.json"
    done = run_harpctl("--quick", "--only", "MTU 9000: stream, 128 KB", "--results", str(file))
    assert done.exit_code == 0, done.output
    (row,) = json.loads(file.read_text())["rows"]
    assert row["ours"] > 0
    assert row["theirs"] > 0
