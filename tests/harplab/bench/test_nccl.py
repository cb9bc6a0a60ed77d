# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench nccl` from the command line to the table, with a harp-nccl that measures nothing."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harpctl import build_info
from harpctl.cli import app
from harpctl.errors import ExitCode, HarpError
from harplab.bench import cores, nccl_command, nccl_wheel, options
from harplab.bench.nccl_measure import (
    NcclJob,
    NcclPlace,
    NcclSide,
    SideRuns,
    alternate_sides,
    fold_runs,
    row_of,
    run_side,
    socket_sides,
)
from harplab.bench.nccl_report import geometric_mean, nccl_notes, nccl_table
from harplab.bench.nccl_run import NcclRun, Size, Survivor, parse_lines
from harplab.lab.spec import LabSpec
from harplab.perf.counts import PacketCounts
from tests.harplab.conftest import write_perf

FAKE = r"""
import json, os, sys
given = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
net = os.environ.get("NCCL_NET", os.environ.get("FAKE_NET", "OTHER"))
with open(os.environ["NCCL_DEBUG_FILE"].replace("%p", "1"), "w") as log:
    log.write(f"NCCL INFO Using network {net}\n" + os.environ.get("FAKE_LOG", ""))
with open(os.environ["FAKE_CALLS"], "a") as calls:
    calls.write(json.dumps([net, sys.argv[1:], dict(os.environ)]) + "\n")
print("a line of an old release")
for size in map(int, given["sizes"].split(",")):
    time_us = float(os.environ.get("FAKE_US", "10")) * size
    rate = size * 8 / 1000 / time_us
    print(json.dumps(dict(kind="size", bytes=size, count=size // 4, type=given["type"], redop=given["redop"],
        time_us=time_us, iterations=3, algbw_gbps=rate, busbw_gbps=rate,
        wrong=int(os.environ.get("FAKE_WRONG", "0")))))
sys.exit(int(os.environ.get("FAKE_CODE", "0")))
"""
OUTPUT = """\
NCCL version 2.13.4
{"kind": "start", "nccl": 21304, "ranks": 4, "op": "alltoall"}
{"kind": "size", "bytes": 8, "count": 2, "type": "float", "redop": "none", "time_us": 45.93, \
"iterations": 20, "algbw_gbps": 0.0014, "busbw_gbps": 0.0014, "wrong": null}
{"kind": "cycle", "number": 1, "init_s": 0.972, "destroy_s": 0.491}
{"kind": "survivor", "rank": 3, "operations": 4, "how": "asynchronous error", "error": "remote", \
"noticed_s": 0.066, "abort": 0, "abort_s": 0.517, "drained_s": 0.001, "last_error": "NET/HARP: \\"lost\\""}
{"kind": "survivor", "rank": 1, "operations": 0, "how": "no error: watchdog's abort", "error": "", \
"noticed_s": 2.0, "abort": 0, "abort_s": 0.1, "drained_s": 0.0, "last_error": ""}
"""


def run_bench(*words: str, **env: str) -> Result:
    return CliRunner().invoke(app, ["bench", "nccl", *words], env=env)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a harp-nccl and a plugin where the built ones are; return the file of the calls."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    write_perf(tmp_path, FAKE).rename(tmp_path / "harp-nccl")
    (tmp_path / "libnccl-net.so").touch()
    monkeypatch.setattr(options, "built_file", lambda name: tmp_path / name)
    file = tmp_path / "calls"
    monkeypatch.setenv("FAKE_CALLS", str(file))
    return file


@pytest.fixture
def base(calls: Path) -> list[str]:
    library = calls.with_name("libnccl.so.2")
    library.touch()
    return ["--loopback", "--nccl-lib", str(library), "--sizes", "64,4K", "--time", "0.01"]


def read_calls(calls: Path) -> list[tuple[str, list[str], dict[str, str]]]:
    return [tuple(json.loads(line)) for line in calls.read_text().splitlines()]


# ---- the command ----


def test_table(base: list[str]) -> None:
    done = run_bench(*base, "--runs", "2", "--env", "FAKE_US=5", "--against-env", "FAKE_US=20")
    assert done.exit_code == 0, done.output
    heads, units, first, second = (line.split() for line in done.stdout.splitlines()[:4])
    assert heads[1:7] == ["size", "count", "type", "redop", "HARP", "time"]
    assert "Socket" in heads
    assert heads[-2:] == ["ratio", "min-max"]
    assert "(Gbit/s)" in units
    assert first[:6] == ["64", "16", "float", "sum", "320.0", "320.0-320.0"]
    assert first[-2:] == ["0.25", "0.25-0.25"]
    assert second[:2] == ["4096", "1024"]
    assert "# 2 processes over the loopback interface" in done.stdout
    assert "allreduce, 2 ranks, GPUs emulated by threads, every element checked" in done.stdout
    assert "geometric mean 0.25" in done.stdout


def test_sides_take_turns(base: list[str], calls: Path) -> None:
    chosen = ["--env", "NCCL_ALGO=Ring", "--env", "HARP_DRIVER=udp", "--against-env", "NCCL_ALGO=Ring"]
    done = run_bench(*base, "--runs", "3", *chosen, NCCL_ALGO="Tree")
    assert done.exit_code == 0, done.output
    made = read_calls(calls)
    assert [net for net, _, _ in made] == ["HARP", "Socket", "Socket", "HARP", "HARP", "Socket"]
    ours, theirs = made[0][2], made[1][2]
    assert (ours["HARP_DRIVER"], ours["HARP_IFNAME"], ours["NCCL_NET_PLUGIN"]) == ("udp", "=lo", "side")
    assert theirs["NCCL_NET_PLUGIN"] == "none"
    assert "HARP_DRIVER" not in theirs
    assert {side["NCCL_ALGO"] for side in (ours, theirs)} == {"Ring"}
    assert "--netns" not in " ".join(made[0][1])
    assert "# HARP with NCCL_ALGO=Ring HARP_DRIVER=udp" in done.stdout
    assert "# Socket with NCCL_ALGO=Ring" in done.stdout
    assert {"--op=allreduce", "--ranks=2", "--sizes=64,4096", "--time=0.01", "--check"} <= set(made[0][1])


def test_runs_are_watched_on_given_cores(
    base: list[str], calls: Path, fake_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks are on these cores in turn, and a run beside which they were apart is made again."""
    monkeypatch.setattr(cores, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(options, "available_cores", lambda: [0, 1])
    file = fake_perf.with_name("readings")
    file.write_text("60 " * cores.FIRST_READINGS + "60 60  60 350  60")
    done = run_bench(*base, "--runs", "2", "--cores", "1,0", "--json", FAKE_LATENCIES=str(file))
    assert done.exit_code == 0, done.output
    made = read_calls(calls)
    assert [net for net, _, _ in made] == ["HARP", "Socket", "Socket", "Socket", "HARP"]
    assert all("--cores=1,0" in words for _, words, _ in made)
    found = json.loads(done.stdout)["core_latency"]
    assert (found["cores"], found["made_again"], found["kept_apart"]) == ([1, 0], 1, 0)


def test_wrong_data_beside_far_cores_is_an_error(
    base: list[str], calls: Path, fake_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(options, "available_cores", lambda: [0, 1])
    file = fake_perf.with_name("readings")
    file.write_text("60 " * cores.FIRST_READINGS + "350")
    done = run_bench(*base, "--runs", "1", "--cores", "0,1", "--env", "FAKE_WRONG=3", FAKE_LATENCIES=str(file))
    assert done.exit_code == ExitCode.WRONG_DATA
    assert [net for net, _, _ in read_calls(calls)][:2] == ["HARP", "Socket"]


def test_json(base: list[str]) -> None:
    done = run_bench(*base, "--runs", "1", "--op", "alltoall", "--no-check", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["job"]["op"] == "alltoall"
    assert [side["name"] for side in document["sides"]] == ["HARP", "Socket"]
    assert [row["bytes"] for row in document["sides"][1]["rows"]] == [64, 4096]
    assert [ratio["of_medians"] for ratio in document["ratios"]] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ((), {"--check"}),
        (("--no-check",), set()),
        (("--settle", "2.5"), {"--check", "--settle=2.5"}),
    ],
)
def test_check_and_settle(base: list[str], calls: Path, words: Sequence[str], given: set[str]) -> None:
    assert run_bench(*base, "--runs", "1", *words).exit_code == 0
    for _, argv, _ in read_calls(calls):
        assert {word for word in argv if word.startswith(("--check", "--settle"))} == given


def test_best_of_sockets_settings(base: list[str], calls: Path) -> None:
    done = run_bench(*base, "--runs", "1", "--against", "socket-best")
    assert done.exit_code == 0, done.output
    assert [net for net, _, _ in read_calls(calls)] == ["HARP", *["Socket"] * 5]
    assert len(done.stdout.splitlines()[2].split()) == len(done.stdout.splitlines()[3].split())


def test_other_plugins(base: list[str], calls: Path, tmp_path: Path) -> None:
    other = tmp_path / "libnccl-net-other.so"
    other.touch()
    done = run_bench(*base, "--runs", "1", "--plugin", str(other), "--against", str(other))
    assert done.exit_code == 0, done.output
    assert "libnccl-net-other time" in done.stdout
    assert "libnccl-net-other (2) time" in done.stdout
    assert [net for net, _, _ in read_calls(calls)] == ["OTHER", "OTHER"]
    sockets = run_bench(*base, "--runs", "1", "--plugin", "socket")
    assert sockets.exit_code == 0, sockets.output
    assert "Socket (1) time" in sockets.stdout


def test_wrong_data(base: list[str]) -> None:
    done = run_bench(*base, "--runs", "2", "--env", "FAKE_WRONG=3", "--env", "FAKE_CODE=4")
    assert done.exit_code == ExitCode.WRONG_DATA
    assert "12 elements arrived with wrong bytes." in done.output
    assert done.stdout.splitlines()[2].split()[8] == "6"


def test_failure_is_reported_with_nccls_message(base: list[str]) -> None:
    log = "NCCL WARN NET/HARP: no such interface\n"
    done = run_bench(*base, "--env", "FAKE_CODE=3", "--env", f"FAKE_LOG={log}")
    assert done.exit_code == ExitCode.FAILED
    assert "NCCL over HARP failed (exit code 3)." in done.output
    assert "NCCL: NET/HARP: no such interface" in done.output


def test_plugin_that_nccl_does_not_use(base: list[str], tmp_path: Path) -> None:
    other = tmp_path / "libnccl-net-other.so"
    other.touch()
    done = run_bench(*base, "--plugin", str(other), "--env", "FAKE_NET=Socket")
    assert done.exit_code == ExitCode.FAILED
    assert "NCCL did not use libnccl-net-other, but Socket." in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--op", "scatter"), "'scatter' is no operation."),
        (("--type", "int4"), "'int4' is no type."),
        (("--redop", "mean"), "'mean' is no reduction."),
        (("--ranks", "65"), "65 is not in the range"),
        (("--op", "alltoall", "--sizes", "4"), "alltoall of float over 2 ranks takes 8 at least"),
        (("--hosts", "a,b"), "No such option"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("calls")
def test_wrong_usage(words: tuple[str, ...], message: str) -> None:
    done = run_bench("--loopback", *words)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert message in done.output


@pytest.mark.usefixtures("calls")
def test_a_library_that_is_not_there() -> None:
    done = run_bench("--loopback", "--nccl-lib", "newest")
    assert done.exit_code == ExitCode.MISSING, done.output
    assert "newest does not exist." in done.output


def test_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build_info, "BUILD_DIR", tmp_path)
    (tmp_path / "libnccl-net.so").touch()
    done = run_bench("--loopback")
    assert done.exit_code == ExitCode.MISSING
    assert "harp-nccl does not exist." in done.output
    assert "./harp_setup build" in done.output


def test_other_machines(base: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    done = run_bench(*base)
    assert done.exit_code == ExitCode.MISSING
    assert "harp-nccl needs an x86-64 machine; this one is aarch64." in done.output


# ---- the place ----


def test_a_core_for_each_rank() -> None:
    assert nccl_command.choose_cores(2, 0, [3, 5, 7]) == ((3, 5), [])
    shared, notes = nccl_command.choose_cores(4, 0, [0, 1])
    assert shared == (0, 1, 0, 1)
    assert "4 ranks share 2 core(s)" in notes[0]
    assert nccl_command.choose_cores(2, 2, [0, 1]) == ((1, 0), [])


def test_loopback_where_no_lab_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_spec: LabSpec) -> None:
        raise HarpError("A lab of network namespaces needs root.")

    monkeypatch.setattr("harplab.lab.lab.require_lab", refuse)
    with options.LocalPlace(ranks=3).open() as (hosts, where, notes):
        assert hosts.count() == 3
        assert (options.namespaces_of(hosts), where) == ((), "3 processes over the loopback interface")
        assert notes == ["no lab, so over loopback: A lab of network namespaces needs root."]


# ---- wheels ----


def test_wheels_of_releases() -> None:
    assert nccl_wheel.wheel_of("2.13.4").package == "nvidia-nccl-cu11"
    assert nccl_wheel.wheel_of("2.22.3").package == "nvidia-nccl-cu12"
    assert nccl_wheel.wheel_of(nccl_wheel.NEWEST).package == "nvidia-nccl-cu13"


def test_fetched_once(tmp_path: Path) -> None:
    ran: list[Sequence[str]] = []

    def pip(argv: Sequence[str]) -> None:
        ran.append(argv)
        with zipfile.ZipFile(Path(argv[argv.index("--dest") + 1]) / "some.whl", "w") as wheel:
            wheel.writestr(nccl_wheel.MEMBER, "the library")

    release = nccl_wheel.wheel_of("2.18.3")
    for _ in range(2):
        assert nccl_wheel.fetch_nccl(release, tmp_path, pip).read_text() == "the library"
    assert len(ran) == 1
    assert (ran[0][0], ran[0][-1]) == (sys.executable, "nvidia-nccl-cu12==2.18.3")
    assert [file.name for file in tmp_path.iterdir()] == ["nccl-2.18.3"]


def test_no_network(base: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pip(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 1, "", "retrying\nERROR: no route to the index\n")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nccl_wheel.subprocess, "run", pip)  # type: ignore[attr-defined]
    done = run_bench("--loopback", *base[3:])
    assert done.exit_code == ExitCode.MISSING
    assert "pip can't fetch nvidia-nccl-cu13==2.32.3: ERROR: no route to the index" in done.output


# ---- the report ----


def test_lines_of_the_report() -> None:
    start, size, _, *survivors = parse_lines(OUTPUT)
    assert start == parse_lines(OUTPUT.splitlines()[1])[0]
    assert isinstance(size, Size)
    assert (size.bytes, size.time_us, size.wrong) == (8, 45.93, None)
    run = NcclRun((), 0, OUTPUT, "")
    assert run.cycles == 1
    assert [survivor.rank for survivor in run.survivors] == [1, 3]
    assert isinstance(survivors[0], Survivor)
    assert survivors[0].last_error == 'NET/HARP: "lost"'
    with pytest.raises(HarpError, match="can't be read"):
        parse_lines('{"kind": "size"}')


def _make_size(bytes_: int, time_us: float, wrong: int | None = 0) -> Size:
    return Size(bytes_, bytes_ // 4, "float", "sum", time_us, 9, 8.0, 9.0, wrong)


def test_medians_ratios_and_best_settings() -> None:
    sides = [NcclSide("HARP", {}), *socket_sides({}, best=True)[:2]]
    assert [side.setting for side in sides][1:] == ["", "NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=1"]
    taken = [
        [
            {8: _make_size(8, 10.0), 64: _make_size(64, 30.0)},
            {8: _make_size(8, 12.0), 64: _make_size(64, 33.0)},
        ],
        [
            {8: _make_size(8, 20.0), 64: _make_size(64, 60.0)},
            {8: _make_size(8, 22.0), 64: _make_size(64, 66.0)},
        ],
        [
            {8: _make_size(8, 40.0), 64: _make_size(64, 20.0)},
            {8: _make_size(8, 44.0), 64: _make_size(64, 22.0)},
        ],
    ]
    counted: list[list[PacketCounts | None]] = [
        [PacketCounts(100, 1), PacketCounts(300, 7)],
        [PacketCounts(100, 0), None],
        [None, None],
    ]
    runs = [SideRuns(one, packets) for one, packets in zip(taken, counted, strict=True)]
    measured = fold_runs(sides, runs, (8, 64))
    assert measured.names == ("HARP", "Socket")
    small, large = measured.ratios
    assert (small.of_medians, small.least, small.greatest) == (11 / 21, 10 / 20, 12 / 22)
    assert (large.of_medians, large.least) == (1.5, 1.5)
    assert geometric_mean(measured) == pytest.approx((11 / 21 * 1.5) ** 0.5)
    assert [row.setting != "" for row in measured.rows[1]] == [False, True]
    notes = nccl_notes("here", "2.32.3", NcclJob(), 2, measured)
    assert measured.lost_shares == (0.02, 0.0)
    assert "HARP: the network dropped 2.00 % of all packets" in notes
    assert any(note.startswith("Socket best with 64: NCCL_SOCKET_NTHREADS=1") for note in notes)
    assert len(nccl_table(measured)) == 4


def test_three_sides_have_no_ratio() -> None:
    sides = [NcclSide(name, {}) for name in "abc"]
    measured = fold_runs(sides, [SideRuns([{8: _make_size(8, 10.0, None)}], [None])] * 3, (8,))
    assert measured.lost_shares == (None,) * 3
    assert measured.ratios == ()
    heads, _, row = nccl_table(measured)
    assert heads[-1] == "#wrong"
    assert row[-1] == "N/A"


def test_row_of_runs() -> None:
    runs = [{8: _make_size(8, time_us, wrong)} for time_us, wrong in ((3.0, 1), (1.0, 0), (2.0, 2))]
    row = row_of(NcclSide("x", {}), runs, 8)
    assert (row.time_us, row.time_min_us, row.time_max_us, row.wrong) == (2.0, 1.0, 3.0, 3)


def test_runs_alternate() -> None:
    order: list[str] = []

    def run(
        _program: Path, _library: Path, options: Sequence[str], environment: Mapping[str, str], _limit: float
    ) -> NcclRun:
        order.append(environment["WHO"])
        assert "--netns=a,b" in options
        assert "--cores=0,1" in options
        line = OUTPUT.splitlines()[2].replace("45.93", f"{len(order)}")
        return NcclRun((), 0, line, f"Using network {environment['WHO']}")

    place = NcclPlace(Path("p"), Path("l"), ("a", "b"), (0, 1))
    sides = [NcclSide(name, {"WHO": name}, name) for name in ("A", "B")]
    steps: list[str] = []
    taken = alternate_sides(place, sides, NcclJob(sizes_bytes=(8,)), 2, steps.append, run)
    assert order == ["A", "B", "B", "A"]
    assert [[one[8].time_us for one in side.runs] for side in taken] == [[1, 4], [2, 3]]
    assert len(steps) == 4
    with pytest.raises(HarpError, match="failed"):
        run_side(place, sides[0], NcclJob(sizes_bytes=(8, 16)), run)


# ---- harp-nccl itself, without an NCCL ----

needs_program = pytest.mark.skipif(platform.machine() != "x86_64", reason="harp-nccl is for x86-64")


def _run_program(*words: str) -> subprocess.CompletedProcess[str]:
    program = options.find_program(None, "harp-nccl")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


@needs_program
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--lib does not take nothing"),
        (("--lib=x", "--op=scatter"), "--op does not take scatter"),
        (("--lib=x", "--ranks=1"), "--ranks does not take 1"),
        (("--lib=x", "--sizes=8,x"), "--sizes does not take x"),
        (("--lib=x", "--sizes=2"), "2 bytes are too few: allreduce of float over 2 ranks takes 4 at least"),
        (("--lib=x", "--op=alltoall", "--ranks=4", "--min=8"), "takes 16 at least"),
        (("--lib=x", "--min=8", "--max=4"), "--min does not take more than --max"),
        (("--lib=x", "--kill=1"), "--kill does not take 1"),
        (("--lib=x", "--kill=2:10"), "a rank above --ranks"),
        (("--lib=x", "--step="), "--step does not take an empty list"),
        (("--lib=x", "--step=8"), "--step does not take 8"),
        (("--lib=x", "--step=x:8"), "--step does not take x"),
        (("--lib=x", "--step=2:8,1:8"), "a bucket before the one in front of it"),
        (("--lib=x", "--step=1:2"), "2 bytes are too few"),
        (("--lib=x", "--step=1:8", "--comms=2"), "--step does not take another operation, --plan or --comms"),
        (("--lib=x", "--step=1:8", "--op=reduce"), "another operation"),
        (("--lib=x", "--compute=-1"), "--compute does not take -1"),
        (("--lib=x", "more"), "does not take more"),
    ],
    ids=str,
)
def test_wrong_options_of_harp_nccl(words: tuple[str, ...], message: str) -> None:
    done = _run_program(*words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


@needs_program
def test_files_that_are_no_nccl(tmp_path: Path) -> None:
    text = tmp_path / "libnccl.so.2"
    text.write_text("text" * 100)
    for words, message in (
        (f"--lib={tmp_path / 'none'}", "No such file or directory"),
        (f"--lib={text}", "is no 64-bit ELF file for x86-64"),
        (f"--lib={options.find_program(None, 'harp-perf')}", "has no symbol table"),
        (f"--lib={options.find_program(None, 'harp-nccl')}", "can't be loaded"),
    ):
        done = _run_program(words)
        assert done.returncode == 5, done.stderr
        assert message in done.stderr


@needs_program
def test_help_names_every_option() -> None:
    done = _run_program("--help")
    assert done.returncode == 0
    source = Path(__file__).resolve().parents[3] / "box" / "options.c"
    options = re.findall(r'\{"([a-z]+)", [01], 0, [A-Z]+\}', source.read_text())
    assert len(options) > 20
    assert [option for option in options if option != "help" and f"--{option}" not in done.stdout] == []
