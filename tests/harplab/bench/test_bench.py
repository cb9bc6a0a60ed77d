# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench` from the command line to the table, with a harp-perf that measures nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from harpctl.build_info import build_version
from harpctl.cli import app
from harpctl.errors import HarpError
from harpctl.facts.plugin_files import NAME
from harplab.bench import options
from harplab.bench.options import build_side, parse_assignment, with_distinct_names
from harplab.bench.places import LoopbackHosts
from harplab.perf import baseline, measure
from harplab.perf.counts import PacketCounts
from harplab.perf.hosts import CpuTimes, Hosts, Program
from harplab.perf.job import PerfJob, PerfReport, PerfResult, PerfRun


def run_harpctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def base(fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(options, "built_file", lambda _name: fake_perf)
    return ["bench", "--loopback", "--plugin", str(fake_plugin), "--time", "0.01"]


def test_version_and_help() -> None:
    assert run_harpctl("--version").output == f"harpctl {build_version()}\n"
    assert run_harpctl("bench", "--help").exit_code == 0
    assert run_harpctl().exit_code != 0


def test_table(base: list[str]) -> None:
    done = run_harpctl(*base, "--sizes", "8,1K", "--env", "FAKE_GBPS=12.5")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["8", "1024"]
    assert lines[2].split()[3] == "12.50"
    assert "# 2 processes over the loopback interface" in lines


def test_sends_waited_for(base: list[str]) -> None:
    done = run_harpctl(*base, "--mode", "pingpong", "--wait-sent", "--sizes", "8")
    assert done.exit_code == 0, done.output
    assert "# pingpong (sends waited for), 1 connection(s), 8 in flight, every byte checked" in done.stdout
    refused = run_harpctl(*base, "--wait-sent", "--sizes", "8")
    assert refused.exit_code == 2
    assert "--wait-sent is for --mode pingpong." in refused.output


def test_more_connections_than_harp_perf_takes(base: list[str]) -> None:
    assert run_harpctl(*base, "--connections", "4096", "--sizes", "8").exit_code == 0
    assert run_harpctl(*base, "--connections", "4097", "--sizes", "8").exit_code == 2


def test_default_sizes_are_those_of_nccl(base: list[str]) -> None:
    sizes = [int(line.split()[0]) for line in run_harpctl(*base).stdout.splitlines() if line.startswith("  ")]
    assert sizes == [8, 1024, 4096, 32768, 65536, 131072, 524288, 1048576]


def test_against_alternates_and_prints_the_ratio(base: list[str], fake_plugin: Path, tmp_path: Path) -> None:
    other, log = tmp_path / "libother.so", tmp_path / "log"
    other.touch()
    words = ["--against", str(other), "--runs", "3", "--sizes", "1M", "--env", "FAKE_GBPS=30"]
    words += ["--against-env", "FAKE_GBPS=20", "--env", f"FAKE_LOG={log}", "--against-env", f"FAKE_LOG={log}"]
    done = run_harpctl(*base, *words)
    assert done.exit_code == 0, done.output
    row = done.stdout.splitlines()[2].split()
    assert row[:5] == ["1M", "30.00", "20.00", "1.50", "1.50-1.50"]
    calls = [json.loads(line)["argv"] for line in log.read_text().splitlines()]
    order = [argv[1] for argv in calls if "--json" in argv]
    a, b = str(fake_plugin), str(other)
    # start-ups, trials, then the runs, in turns
    trials = [a] * measure.TRIALS + [b] * measure.TRIALS
    assert order == [a, b] * measure.START_UPS + trials + [a, b, b, a, a, b]
    written = json.loads(run_harpctl(*base, *words, "--json").stdout)
    assert [side["name"] for side in written["sides"]] == [fake_plugin.stem, "libother"]
    assert written["ratios"][0]["of_medians"] == pytest.approx(1.5)
    assert written["sides"][0]["rows"][0]["runs"] == 3


def test_json_alone_on_standard_output(base: list[str]) -> None:
    done = run_harpctl(*base, "--sizes", "8", "--mode", "pingpong", "--json")
    document = json.loads(done.stdout)
    assert document["job"]["mode"] == "pingpong"
    assert document["sides"][0]["rows"][0]["latency_us"]["p50"] == 2.0
    assert document["ratios"] == []


def test_wrong_data_is_an_error_after_the_table(base: list[str]) -> None:
    done = run_harpctl(*base, "--sizes", "8", "--env", "FAKE_WRONG=4")
    assert done.exit_code == 3
    assert "#wrong" in done.stdout
    assert "4 messages arrived with wrong bytes" in done.stderr


def test_variables_are_of_one_side_only(base: list[str], fake_plugin: Path, tmp_path: Path) -> None:
    log, chosen = tmp_path / "log", ["--env", "HARP_DRIVER=udp", "--env", "HARP_PATHS=8"]
    words = ["--env", f"FAKE_LOG={log}", "--against", str(fake_plugin), "--against-env", f"FAKE_LOG={log}"]
    done = run_harpctl(*base, "--sizes", "8", "--runs", "1", *chosen, *words)
    assert done.exit_code == 0, done.output
    environments = [json.loads(line)["env"] for line in log.read_text().splitlines()]
    found = {(env.get("HARP_DRIVER"), env.get("HARP_PATHS")) for env in environments}
    assert found == {("udp", "8"), (None, None)}


def test_json_is_one_document_also_where_data_was_wrong(base: list[str]) -> None:
    done = run_harpctl(*base, "--sizes", "8", "--env", "FAKE_WRONG=4", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["sides"][0]["rows"][0]["wrong"] == 4
    assert "4 messages arrived with wrong bytes" in done.stderr


def test_options_before_the_name_of_another_benchmark_are_refused(base: list[str]) -> None:
    done = run_harpctl(*base, "nccl")
    assert done.exit_code == 2
    assert "Options stand behind `bench nccl`." in done.stderr


def test_plot(base: list[str], tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    assert run_harpctl(*base, "--sizes", "8,1K", "--plot", str(file)).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    done = run_harpctl(*base, "--plot", str(tmp_path / "picture.doc"))
    assert done.exit_code == 2
    assert "ends in .png" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--sizes", "8,many"], 2, "'many' is not a message size"),
        (["--env", "NAME"], 2, "'NAME' is not NAME=VALUE"),
        (["--plugin", "no-such-plugin.so"], 4, "no-such-plugin.so does not exist"),
        (["--hosts", "one"], 2, "takes two hosts at least"),
        (["--cap", "1000"], 2, "No such option"),
    ],
)
def test_wrong_words_are_named_without_a_traceback(
    base: list[str], words: list[str], code: int, message: str
) -> None:
    done = run_harpctl(*base, *words)
    assert done.exit_code == code, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_debug_shows_the_exception(base: list[str]) -> None:
    done = run_harpctl("--debug", *base, "--sizes", "x")
    assert isinstance(done.exception, HarpError)


def test_a_failing_plugin_is_reported_in_full(base: list[str]) -> None:
    done = run_harpctl(*base, "--sizes", "8", "--env", "FAKE_FAIL_RANK=0")
    assert done.exit_code == 1
    assert "the ENI is on fire" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--loss", "some"], "below 100, not 'some'"),
        (["--loss", "100"], "Write --loss 1 to lose 1 of 100"),
        (["--mtu", "12"], "not 12"),
        (["--cap", "10,20"], "2 caps do not fit 1 ENIs"),
        (["--fail", "eni0:burnt@0.1"], "is not a failure"),
        (["--fail", "eni1:down@0.1"], "that this lab lacks"),
        (["--cap", "fast"], "--cap takes a number or a comma list"),
        (["--cores", "0,1", "--rps"], "--cores does not take --rps."),
        (["--hosts", "a,b"], "No such option"),
    ],
)
def test_wrong_words_of_a_lab(words: list[str], message: str) -> None:
    done = run_harpctl("lab", "bench", *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


class Recorder:
    """A harp-perf without processes: rates from a table by setting, machine time that grows with messages."""

    def __init__(self, gbps: dict[str, float], first_s: float = 0.0) -> None:
        self.gbps = gbps
        self.first_s = first_s  # machine time that the first run takes more
        self.jobs: list[tuple[str, PerfJob]] = []

    def __call__(self, _hosts: Hosts, program: Program, job: PerfJob) -> PerfRun:
        threads = program.env.get("NCCL_SOCKET_NTHREADS", "0")
        self.jobs.append((threads, job))
        rate = self.gbps[threads]
        count = (job.iterations or 1000) * job.connections
        rows = [PerfResult(size, count, job.time_s, rate, rate, 0) for size in job.sizes_bytes]
        moved_gb = sum(row.messages * row.bytes for row in rows) / 1e9
        report = PerfReport("x", "X", 12, job.mode, 2, job.connections, 8, check=True, results=rows)
        more_s = self.first_s if len(self.jobs) == 1 else 0.0
        return PerfRun(report, CpuTimes(0.3 + more_s + 2.0 * moved_gb, 0.1))


def run_measure(recorder: Recorder, job: PerfJob, settings: tuple[dict[str, str], ...]) -> measure.Measured:
    side = measure.Side("X", Program(Path("p"), Path("x")), settings)
    return measure.measure_sides(LoopbackHosts(), [side], job, 2, lambda _text: None, recorder)


class CountingHosts(LoopbackHosts):
    """Hosts whose network is given 100 packets between two readings, and drops 3."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0

    def packets(self) -> PacketCounts:
        self.readings += 1
        return PacketCounts(100 * self.readings, 3 * self.readings)


def test_rows_have_the_share_that_the_network_dropped() -> None:
    side = measure.Side("X", Program(Path("p"), Path("x")))
    job = PerfJob("stream", (1000,), iterations=10)
    for hosts, share in ((CountingHosts(), 0.03), (LoopbackHosts(), None)):
        measured = measure.measure_sides(hosts, [side], job, 2, lambda _text: None, Recorder({"0": 10}))
        assert measured.rows[0][0].lost_share == share


def test_the_best_setting_is_found_per_size_and_used() -> None:
    settings: tuple[dict[str, str], ...] = ({}, *({"NCCL_SOCKET_NTHREADS": str(n)} for n in (1, 2)))
    recorder = Recorder({"0": 10, "1": 30, "2": 20})
    measured = run_measure(recorder, PerfJob("stream", (1000, 2000)), settings)
    used = [threads for threads, _ in recorder.jobs][measure.START_UPS :]
    trials = [threads for threads in ("0", "1", "2") for _ in range(measure.TRIALS)]
    assert used == [*trials, "1", "1"] * 2
    assert measured.settings == (({"NCCL_SOCKET_NTHREADS": "1"},) * 2,)


def test_a_time_becomes_a_count_of_messages_per_connection() -> None:
    recorder = Recorder({"0": 10})
    run_measure(recorder, PerfJob("stream", (1000,), connections=4, time_s=2.0), ({},))
    jobs = [job for _, job in recorder.jobs]
    startups, trial, runs = jobs[: measure.START_UPS], jobs[measure.START_UPS], jobs[-2:]
    assert [startup.iterations for startup in startups] == [1] * measure.START_UPS
    assert (trial.iterations, trial.time_s) == (None, 0.5)
    # The trial moved 1000 messages on each connection in 0.5 s, so 2 s are 4000.
    assert [job.iterations for job in runs] == [4000, 4000]


def test_a_trial_has_a_least_time() -> None:
    recorder = Recorder({"0": 10})
    run_measure(recorder, PerfJob("stream", (1000,), time_s=0.02), ({},))
    _, trial = recorder.jobs[measure.START_UPS]
    assert trial.time_s == measure.TRIAL_MIN_S
    assert [job.iterations for _, job in recorder.jobs[-2:]] == [200, 200]


def test_of_trials_the_faster_one_counts() -> None:
    """One that stalls would find a count that is over in no time."""
    recorder = Recorder({"0": 10})

    def stalls_once(hosts: Hosts, program: Program, job: PerfJob) -> PerfRun:
        done = recorder(hosts, program, job)
        if job.iterations is None and len(recorder.jobs) == measure.START_UPS + 1:
            (result,) = done.report.results
            slow = msgspec.structs.replace(result, messages=10, algbw_gbps=0.1)
            return PerfRun(msgspec.structs.replace(done.report, results=[slow]), done.cpu)
        return done

    side = measure.Side("X", Program(Path("p"), Path("x")))
    job = PerfJob("stream", (1000,), time_s=0.1)
    measure.measure_sides(LoopbackHosts(), [side], job, 2, lambda _text: None, stalls_once)
    assert [job.iterations for _, job in recorder.jobs[-2:]] == [1000, 1000]


def test_given_iterations_need_no_trial() -> None:
    recorder = Recorder({"0": 10})
    run_measure(recorder, PerfJob("stream", (1000,), iterations=7), ({},))
    assert [job.iterations for _, job in recorder.jobs] == [1] * measure.START_UPS + [7, 7]


def test_machine_time_is_without_start_up() -> None:
    measured = run_measure(Recorder({"0": 10}), PerfJob("stream", (1_000_000,), iterations=5000), ({},))
    assert measured.rows[0][0].cpu_s_per_gb == pytest.approx(2.0, rel=1e-2)


def test_the_first_start_up_which_reads_files_does_not_count() -> None:
    recorder = Recorder({"0": 10}, first_s=5.0)
    measured = run_measure(recorder, PerfJob("stream", (1_000_000,), iterations=5000), ({},))
    assert measured.rows[0][0].cpu_s_per_gb == pytest.approx(2.0, rel=1e-2)


def test_the_progress_bar_counts_every_step() -> None:
    settings: tuple[dict[str, str], ...] = ({}, {"NCCL_SOCKET_NTHREADS": "1"})
    program = Program(Path("p"), Path("x"))
    sides = [measure.Side("A", program), measure.Side("B", program, settings)]
    for job in (PerfJob("stream", (8, 16)), PerfJob("stream", (8,), iterations=5)):
        steps: list[str] = []
        measure.measure_sides(LoopbackHosts(), sides, job, 3, steps.append, Recorder({"0": 1, "1": 2}))
        assert len(steps) == measure.steps_total(sides, job, 3)


def test_the_shim_is_compiled_once_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran: list[Any] = []

    def run(argv: Sequence[str]) -> None:
        ran.append(argv)
        Path(argv[argv.index("-o") + 1]).write_text("the shim")

    cache = baseline.cache_dir()
    for _ in range(2):
        assert baseline.compile_shim(cache, run).read_text() == "the shim"
    assert len(ran) == 1
    assert not list(cache.glob("tmp*"))
    with pytest.raises(HarpError, match=r"source .* is missing"):
        baseline.compile_shim(cache, run, tmp_path / "none.c")


def test_socket_side_takes_nccls_own_settings(
    monkeypatch: pytest.MonkeyPatch, fake_perf: Path, fake_plugin: Path
) -> None:
    monkeypatch.setattr("harplab.bench.options.socket_baseline", lambda: (fake_plugin, {"NCCL_LIB": "lib"}))
    side = build_side("socket", fake_perf, {"NCCL_SOCKET_NTHREADS": "2"})
    assert dict(side.program.env) == {"NCCL_LIB": "lib", "NCCL_SOCKET_NTHREADS": "2"}
    assert len(build_side("socket-best", fake_perf, {}).settings) > 3


def test_sides_of_one_name_are_distinguished() -> None:
    def names(*files: str) -> list[str]:
        sides = [measure.Side(Path(file).stem, Program(Path("p"), Path(file))) for file in files]
        return [side.name for side in with_distinct_names(sides)]

    assert names("/a/x.so", "/b/y.so") == ["x", "y"]
    assert names("/a/x.so", "/b/x.so") == ["a/x", "b/x"]
    assert names("/a/x.so", "/a/x.so") == ["x (1)", "x (2)"]


def test_demo_measures_over_loopback_where_no_namespaces_can_be_made(
    fake_perf: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "built_file", {"harp-perf": fake_perf, NAME: fake_plugin}.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = run_harpctl("demo")
    assert done.exit_code == 0, done.output
    assert "# no lab, so over loopback: A lab of network namespaces needs root." in done.stdout
    assert [line for line in done.stdout.splitlines() if "every byte checked" in line] == [
        f"# {mode}, 1 connection(s), 8 in flight, every byte checked" for mode in ("pingpong", "stream")
    ]
    documents = json.loads(run_harpctl("demo", "--json").stdout)
    assert [each["job"]["mode"] for each in documents] == ["pingpong", "stream"]


def test_assignment() -> None:
    assert parse_assignment("A=b=c") == ("A", "b=c")
    for wrong in ("A", "=b", ""):
        with pytest.raises(HarpError, match="NAME=VALUE"):
            parse_assignment(wrong)
