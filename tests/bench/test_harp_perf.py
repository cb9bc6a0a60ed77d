# SPDX-License-Identifier: Apache-2.0
"""harp-perf itself: every mode and ABI, what it catches, what it reports when something fails."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.bench.conftest import Perf, clean_env, free_port, wait_for_end

MODES = ["stream", "bidir", "pingpong", "ring", "alltoall"]
FEW = ("--sizes", "0,1,8,1000,70000", "--iters", 60, "--warmup", 5)
OK, WRONG, USAGE, PLUGIN, PEER, SYSTEM, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def count_directions(mode: str, nranks: int) -> int:
    """Count pairs of (from, to) that carry messages."""
    half = nranks // 2
    counts = {"stream": half, "bidir": 2 * half, "pingpong": 2 * half, "ring": nranks}
    return counts.get(mode, nranks * (nranks - 1))


@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_mode_moves_checked_messages(perf: Perf, mode: str, nranks: int) -> None:
    ended = perf.run("--mode", mode, "--nranks", nranks, "--connections", 2, *FEW, "--json", "-")
    assert ended.code == OK, ended.err
    report = ended.json()
    assert report["mode"] == mode
    assert report["nranks"] == nranks
    assert [row["bytes"] for row in report["results"]] == [0, 1, 8, 1000, 70000]
    for row in report["results"]:
        assert row["messages"] == 60 * 2 * count_directions(mode, nranks)
        assert row["wrong"] == 0


def test_odd_rank_looks_on(perf: Perf) -> None:
    ended = perf.run("--mode", "stream", "--nranks", 5, *FEW, "--json", "-")
    assert ended.code == OK, ended.err
    assert {row["messages"] for row in ended.json()["results"]} == {60 * 2}


@pytest.mark.parametrize("abi", [4, 8, 12])
def test_abi(perf: Perf, abi: int) -> None:
    ended = perf.run("--mode", "alltoall", "--nranks", 3, "--abi", abi, *FEW, "--json", "-")
    assert ended.code == OK, ended.err
    assert ended.json()["abi"] == abi


def test_newest_abi_is_taken(perf: Perf) -> None:
    assert perf.run("--mode", "stream", *FEW, "--json", "-").json()["abi"] == 12


def test_abi_not_exported(perf: Perf) -> None:
    ended = perf.run("--mode", "stream", "--abi", 9)
    assert ended.code == PLUGIN
    assert "does not export ncclNetPlugin_v9" in ended.err


def test_json_schema(perf: Perf, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    ended = perf.run("--mode", "pingpong", *FEW, "--inflight", 16, "--json", file)
    assert ended.code == OK, ended.err
    ended.out, table = file.read_text(), ended.out
    report = ended.json()
    rows = report.pop("results")
    assert report == {
        "plugin": str(perf.plugin),
        "name": "Fake",
        "abi": 12,
        "mode": "pingpong",
        "nranks": 2,
        "connections": 1,
        "inflight": 16,
        "check": True,
        "wait_sent": False,
    }
    for row in rows:
        assert list(row) == [
            "bytes", "messages", "seconds", "algbw_gbps", "busbw_gbps", "latency_us", "wrong", "cpu_s",
        ]  # fmt: skip
        latency = row["latency_us"]
        assert set(latency) == {"min", "p50", "p90", "p99", "p999", "max", "mean"}
        ordered = [latency[name] for name in ("min", "p50", "p90", "p99", "p999", "max")]
        assert ordered == sorted(ordered)
        assert ordered[0] <= latency["mean"] <= ordered[-1]
        assert row["seconds"] > 0
        assert row["cpu_s"] >= 0
    lines = [line.split() for line in table.splitlines() if not line.startswith("#")]
    assert [int(line[0]) for line in lines] == [0, 1, 8, 1000, 70000]


def test_rates(perf: Perf) -> None:
    """Check the definitions: bytes that a rank receives per second, and nccl-tests' factor of alltoall."""
    for mode, nranks, factor in [("stream", 2, 1.0), ("bidir", 2, 1.0), ("alltoall", 3, 3 / 2)]:
        args = ("--mode", mode, "--nranks", nranks, "--sizes", 5000, "--iters", 100, "--json", "-")
        row = perf.run(*args).json()["results"][0]
        receivers = 1 if mode == "stream" else nranks
        gbps = row["messages"] * 5000 * 8 / row["seconds"] / receivers / 1e9
        assert row["busbw_gbps"] == pytest.approx(gbps, rel=1e-3)
        assert row["algbw_gbps"] == pytest.approx(gbps * factor, rel=1e-3)
        assert row["latency_us"] is None


@pytest.mark.parametrize("abi", [4, 12])
def test_sends_waited_for(perf: Perf, tmp_path: Path, abi: int) -> None:
    """A receive is posted only when this rank's send before it is done; the leader's first waits too."""
    trace = tmp_path / "trace"
    args = ("--mode", "pingpong", "--wait-sent", "--nranks", 4, "--connections", 3, "--abi", abi)
    ended = perf.run(*args, "--sizes", "0,8,70000", "--iters", 60, "--json", "-")
    assert ended.code == OK, ended.err
    assert ended.json()["wait_sent"] is True
    for row in ended.json()["results"]:
        assert row["messages"] == 60 * 3 * 4
        assert row["wrong"] == 0
        assert row["latency_us"]["min"] > 0
    few = ("--mode", "pingpong", "--sizes", 8, "--iters", 3, "--warmup", 0)
    orders = {words: set(orders_of_messages(perf, trace, *few, *words)) for words in ((), ("--wait-sent",))}
    assert orders["--wait-sent",] == {
        ("isend", "sent", "irecv", "received") * 3,
        ("irecv", "received", "isend", "sent") * 3,
    }
    assert not orders["--wait-sent",] & orders[()]


def orders_of_messages(perf: Perf, trace: Path, *args: object) -> list[tuple[str, ...]]:
    """Run the ranks; list each one's messages as they were posted and done."""
    trace.unlink(missing_ok=True)
    assert perf.run(*args, env={"FAKENET_TRACE": str(trace), "FAKENET_MESSAGES": "1"}).code == OK
    steps = {"isend", "sent", "irecv", "received"}
    return [tuple(call for call in made if call in steps) for made in calls_by_process(trace).values()]


OPEN_FILES = 12500  # what 4096 connections of one direction take


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < OPEN_FILES, reason="too few open files allowed"
)
def test_4096_connections(perf: Perf) -> None:
    args = ("--mode", "stream", "--connections", 4096, "--inflight", 1, "--sizes", 8, "--warmup", 1)
    ended = perf.run(*args, "--iters", 2, "--json", "-")
    assert ended.code == OK, ended.err
    assert ended.json()["results"][0]["messages"] == 2 * 4096


def with_open_files(perf: Perf, limit: str, *args: object) -> subprocess.CompletedProcess[str]:
    script = f'ulimit {limit}; exec "$@"'
    argv = ["sh", "-c", script, "sh", *perf.argv(*args)]
    return subprocess.run(argv, env=clean_env(), capture_output=True, text=True, timeout=60, check=False)


def test_the_limit_of_open_files_is_raised(perf: Perf) -> None:
    ended = with_open_files(perf, "-S -n 128", "--mode", "bidir", "--connections", 100, *FEW)
    assert ended.returncode == OK, ended.stderr


def test_too_few_open_files(perf: Perf) -> None:
    ended = with_open_files(perf, "-n 128", "--mode", "bidir", "--connections", 100, *FEW)
    assert ended.returncode == SYSTEM
    assert (
        "200 connection ends need 364 open files, the limit is 128: raise it with `ulimit -n 364`" in ended.stderr
    )


def test_by_time_all_ranks_agree(perf: Perf) -> None:
    ended = perf.run("--mode", "ring", "--nranks", 3, "--time", 0.05, "--sizes", "8,64K", "--json", "-")
    assert ended.code == OK, ended.err
    for row in ended.json()["results"]:
        assert row["messages"] % 3 == 0
        assert row["messages"] > 0


def test_size_range(perf: Perf) -> None:
    args = ("--min", 8, "--max", "2K", "--factor", 4, "--iters", 5, "--json", "-")
    report = perf.run("--mode", "stream", *args).json()
    assert [row["bytes"] for row in report["results"]] == [8, 32, 128, 512, 2048]


def test_busy_plugin_is_called_again(perf: Perf) -> None:
    env = {"FAKENET_BUSY": "3"}
    for mode in MODES:
        ended = perf.run("--mode", mode, "--nranks", 3, *FEW, env=env)
        assert ended.code == OK, ended.err


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        # Each tenth of 65 messages of each of the four sizes that have bytes; the empty one counts on
        ("FAKENET_FLIP", 26),
        ("FAKENET_SHORT", 33),
        ("FAKENET_REPEAT", 26),
    ],
)
def test_wrong_data_is_counted(perf: Perf, fault: str, expected: int) -> None:
    ended = perf.run("--mode", "stream", *FEW, "--json", "-", env={fault: "10"})
    assert ended.code == WRONG
    counted = sum(row["wrong"] for row in ended.json()["results"])
    assert abs(counted - expected) <= 1
    assert "arrived wrong" in ended.err
    assert ended.err.count("harp-perf: wrong: message") == 8  # the first few are described, not all


def test_every_byte_is_checked(perf: Perf) -> None:
    """One flipped bit in the only message of a size is found."""
    args = ("--mode", "stream", "--iters", 1, "--warmup", 0, "--json", "-")
    for size in (1, 7, 8, 9, 63, 64, 65, 4096, 100_003):
        ended = perf.run(*args, "--sizes", size, env={"FAKENET_FLIP": "1"})
        assert ended.code == WRONG
        assert ended.json()["results"][0]["wrong"] == 1
        where = f"message 0 of {size} bytes, connection 0 from rank 0 to 1: first wrong byte at offset"
        assert f"{where} {size * 2 // 3}: " in ended.err


def test_bytes_behind_the_message_are_watched(perf: Perf) -> None:
    args = ("--mode", "stream", "--sizes", 1000, "--iters", 130, "--warmup", 0, "--json", "-")
    ended = perf.run(*args, env={"FAKENET_TAIL": "1"})
    assert ended.code == WRONG
    assert ended.json()["results"][0]["wrong"] == 130 // 13
    assert "bytes behind it were overwritten" in ended.err


def test_no_check_leaves_wrong_bytes_unseen(perf: Perf) -> None:
    ended = perf.run("--mode", "stream", *FEW, "--no-check", env={"FAKENET_FLIP": "2"})
    assert ended.code == OK, ended.err
    assert "N/A" in ended.out


@pytest.mark.parametrize("mode", MODES)
def test_plugin_error_ends_all_ranks(perf: Perf, mode: str) -> None:
    env = {"FAKENET_FAIL": "70", "FAKENET_RANK": "0"}
    ranks = perf.ranks(3, "--mode", mode, *FEW, env=env)
    assert ranks[0].code == PLUGIN
    message = "Fake v12: isend failed: remote error (6); last WARN: fakenet: told to fail in isend"
    assert message in ranks[0].err
    for other in ranks[1:]:
        assert other.code in {PLUGIN, PEER}
        # from rank 0 over the rendezvous, or by the plugin first
        assert message in other.err or "the peer left" in other.err or "rank 0 left" in other.err


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"FAKENET_INIT": "1"}, "init failed: system error (2); last WARN: fakenet: told to fail in init"),
        ({"FAKENET_CONNECT": "1"}, "connect failed: remote error (6)"),
        ({"FAKENET_KEEP_REQUEST": "20"}, "left *request unwritten"),
        ({"FAKENET_KEEP_DONE": "20"}, "test left *done unwritten"),
        ({"FAKENET_HANG": "20"}, "nothing moved for 2 s"),
    ],
)
def test_broken_plugin_is_named(perf: Perf, fault: dict[str, str], text: str) -> None:
    ended = perf.run("--mode", "ring", *FEW, "--timeout", 2 if "FAKENET_HANG" in fault else 30, env=fault)
    assert ended.code == PLUGIN
    assert text in ended.err


def test_v4_handle_has_64_bytes(perf: Perf) -> None:
    env = {"FAKENET_HANDLE": "1"}
    assert perf.run("--mode", "stream", *FEW, env=env).code == OK
    ended = perf.run("--mode", "stream", "--abi", 4, *FEW, env=env)
    assert ended.code == PLUGIN
    assert "wrote behind the 64 bytes of the handle" in ended.err


def test_dead_rank_ends_the_others(perf: Perf) -> None:
    """Rank 2 only waits at the barrier when rank 1, which sends nothing either, is killed."""
    children = perf.start_ranks(3, "--mode", "stream", "--sizes", "1M", "--time", 600)
    wait_for_table(children[0])
    children[1].kill()
    first, second = wait_for_end(children[0]), wait_for_end(children[2])
    assert first.code in {PLUGIN, PEER}
    assert second.code == PEER
    assert "rank 0 failed" in second.err or "rank 1 left" in second.err


def test_rank_that_leaves_silently_is_named(perf: Perf) -> None:
    env = {"FAKENET_DIE": "50", "FAKENET_RANK": "2"}
    ranks = perf.ranks(3, "--mode", "ring", "--timeout", 30, *FEW, env=env)
    assert ranks[0].code in {PLUGIN, PEER}
    assert ranks[1].code in {PLUGIN, PEER}
    assert "rank 2 left" in ranks[0].err + ranks[1].err or "the peer left" in ranks[0].err + ranks[1].err


def wait_for_table(child: subprocess.Popen[str]) -> None:
    """Read the table's head: from there on messages move."""
    assert child.stdout
    for line in child.stdout:
        if line.lstrip("# ").startswith("(B)"):
            return
    raise AssertionError("no table")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_is_clean(perf: Perf, tmp_path: Path, number: signal.Signals) -> None:
    trace = tmp_path / "trace"
    child = perf.start("--mode", "bidir", "--time", 600, env={"FAKENET_TRACE": str(trace)})
    wait_for_table(child)
    child.send_signal(number)
    ended = wait_for_end(child)
    assert ended.code in {PLUGIN, PEER, INTERRUPTED}
    assert "interrupted by" in ended.err
    calls = calls_by_process(trace)
    assert len(calls) == 2
    for made in calls.values():
        assert made[-1] == "finalize"


def calls_by_process(trace: Path) -> dict[str, list[str]]:
    calls: dict[str, list[str]] = defaultdict(list)
    for line in trace.read_text().splitlines():
        process, call = line.split()
        calls[process].append(call)
    return calls


def test_calls_come_in_the_order_of_nccl(perf: Perf, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    args = ("--mode", "bidir", "--connections", 2, *FEW)
    assert perf.run(*args, env={"FAKENET_TRACE": str(trace)}).code == OK
    for made in calls_by_process(trace).values():
        assert made[0] == "init"
        assert made[-1] == "finalize"
        assert made.count("accept") == made.count("closeListen") == made.count("connect") == 2
        for at, call in enumerate(made):
            if call == "accept":
                assert made[at + 1] == "closeListen"
            if call in {"closeSend", "closeRecv"}:
                assert made[at - 1] == "deregMr"
        assert made.count("regMr") == made.count("deregMr") == 4
        assert made.index("listen") < made.index("connect")


def test_ranks_with_other_options_are_refused(perf: Perf) -> None:
    each = ("--mode=ring", "--mode=stream")
    ranks = perf.ranks(2, *FEW, "--timeout", 4, each=each)
    assert ranks[1].code == USAGE
    assert "other options" in ranks[1].err
    assert ranks[0].code == PEER
    assert "1 of 2 ranks came" in ranks[0].err


def test_missing_rank0(perf: Perf) -> None:
    where = f"127.0.0.1:{free_port()}"
    args = ("--mode", "ring", "--rank", 1, "--nranks", 2, "--rendezvous", where, "--timeout", 0.3)
    ended = perf.run(*args)
    assert ended.code == PEER
    assert f"no rank 0 at {where} within 0.3 s: Connection refused" in ended.err


def test_rendezvous_of_another_host(perf: Perf) -> None:
    ended = perf.run("--mode", "ring", "--rank", 0, "--nranks", 2, "--rendezvous", "192.0.2.1:9")
    assert ended.code == USAGE
    assert "192.0.2.1:9 is not an address of this host" in ended.err


def test_unknown_host_at_the_rendezvous(perf: Perf) -> None:
    """A port scan and garbage cost a bounded wait, no more."""
    import socket

    port = free_port()
    args = (*FEW, "--mode", "ring", "--nranks", 2, "--rendezvous", f"127.0.0.1:{port}")
    first = perf.start(*args, "--rank", 0)
    deadline = time.monotonic() + 10
    while True:
        try:
            unknown = socket.create_connection(("127.0.0.1", port), timeout=5)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
    unknown.sendall(random.Random(1).randbytes(64))
    second = perf.start(*args, "--rank", 1)
    assert wait_for_end(second).code == OK
    assert wait_for_end(first).code == OK
    unknown.close()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "--mode is missing"),
        (["--mode", "sideways"], "expected stream, bidir, pingpong, ring, alltoall or incast"),
        (["--mode", "ring", "--sizes", "8,9x"], "size 9x: expected bytes"),
        (["--mode", "ring", "--sizes", "2G"], "size 2G: expected bytes up to 1G"),
        (["--mode", "ring", "--sizes", "8,"], "size : expected bytes"),
        (["--mode", "ring", "--sizes", "8", "--min", "8"], "exclude each other"),
        (["--mode", "ring", "--inflight", "33"], "--inflight 33: expected a whole number from 1 to 32"),
        (["--mode", "ring", "--inflight", "-1"], "--inflight -1: expected"),
        (["--mode", "ring", "--time", "nan"], "--time nan: expected seconds"),
        (
            ["--mode", "ring", "--connections", "4097"],
            "--connections 4097: expected a whole number from 1 to",
        ),
        (["--mode", "ring", "--wait-sent"], "--wait-sent is for --mode pingpong"),
        (
            ["--mode", "alltoall", "--nranks", "32", "--connections", "4096"],
            "--mode alltoall with 32 ranks takes at most 528 connections, not 4096",
        ),
        (["--mode", "ring", "--pause-ms", "5"], "--pause-ms takes --interval-ms or --hold"),
        (["--mode", "ring", "--rank", "0"], "--rank without --nranks"),
        (["--mode", "ring", "--rank", "2", "--nranks", "2"], "--rank 2: expected 0 to 1"),
        (["--mode", "ring", "--rank", "0", "--nranks", "2"], "where do the ranks meet?"),
        (["--mode", "ring", "--dev", "1"], "--dev 1: Fake has 1 device"),
        (["--mode", "ring", "extra"], "unexpected argument extra"),
        (["--mode", "alltoall", "--sizes", "1G", "--connections", "256"], "more than half the memory"),
    ],
)
def test_usage(perf: Perf, args: list[str], text: str) -> None:
    ended = perf.run(*args)
    assert text in ended.err
    assert ended.code == USAGE


def test_connections_are_held_idle(perf: Perf) -> None:
    start = time.monotonic()
    ended = perf.run("--mode", "incast", "--nranks", 3, "--sizes", "8,16", "--iters", 2, "--hold", 0.5)
    assert ended.code == OK, ended.err
    assert time.monotonic() - start >= 0.5


def test_a_timed_run_pauses(perf: Perf) -> None:
    """Each look moves at most one message of 8 bytes, and there are at most 20 looks."""
    by_the_clock = ("--time", 0.4, "--interval-ms", 100, "--pause-ms", 20, "--inflight", 1, "--warmup", 0)
    ended = perf.run("--mode", "stream", "--sizes", "8", *by_the_clock, "--json", "-")
    assert ended.code == OK, ended.err
    received = sum(ended.json()["results"][0]["window"]["samples"])
    assert 8 <= received <= 8 * 20


def test_not_a_plugin(perf: Perf, tmp_path: Path) -> None:
    file = tmp_path / "empty.so"
    file.write_bytes(b"no library")
    perf.plugin = file
    ended = perf.run("--mode", "ring", *FEW)
    assert ended.code == PLUGIN
    assert str(file) in ended.err


def test_json_that_cannot_be_written_fails_early(perf: Perf) -> None:
    ended = perf.run("--mode", "ring", "--time", 600, "--json", "/nonexistent/file")
    assert ended.code != OK
    assert "cannot write /nonexistent/file" in ended.err


def test_log_level(perf: Perf) -> None:
    line = "fakenet: ready"
    assert line not in perf.run("--mode", "ring", *FEW).err
    assert line in perf.run("--mode", "ring", *FEW, "--log", "info").err
    assert line in perf.run("--mode", "ring", *FEW, env={"NCCL_DEBUG": "INFO"}).err


def core_latency(perf: Perf, cores: str) -> subprocess.CompletedProcess[str]:
    argv = [str(perf.program), "--core-latency", cores]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_core_latency(perf: Perf) -> None:
    """One figure, and no plugin is needed; either core may ask."""
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
    for pair in (cores, cores[::-1]):
        ended = core_latency(perf, ",".join(pair))
        assert ended.returncode == OK, ended.stderr
        assert re.fullmatch(r"\d+\.\d\n", ended.stdout)
        assert float(ended.stdout) > 0


@pytest.mark.parametrize("cores", ["", "0", "0,", "0,0", "0,1,2", "0,x", "-1,0", "0,4096"])
def test_core_latency_takes_two_cores(perf: Perf, cores: str) -> None:
    ended = core_latency(perf, cores)
    assert ended.returncode == USAGE
    assert f"--core-latency {cores}: expected two different cores, such as 0,1" in ended.stderr


@pytest.mark.parametrize("cores", ["{have},4095", "4095,{have}"])
def test_core_that_cannot_be_had(perf: Perf, cores: str) -> None:
    """Either core may be the one, and nothing is printed for the other."""
    ended = core_latency(perf, cores.format(have=min(os.sched_getaffinity(0))))
    assert ended.returncode == USAGE
    assert not ended.stdout
    assert "core 4095 is not available to this process (Invalid argument): name two of those" in ended.stderr


def test_help_names_every_option(perf: Perf) -> None:
    ended = perf.run("--help")
    assert ended.code == OK
    options = "plugin abi mode sizes min max factor connections inflight time iters warmup check no-check dev"
    options += " json rank nranks rendezvous timeout log core-latency"
    for option in options.split():
        assert f"--{option}" in ended.out


def test_version(perf: Perf) -> None:
    ended = perf.run("--version")
    assert ended.code == OK
    assert re.fullmatch(r"harp-perf \d+\.\d+\.\d+(-\d+-g[0-9a-f]+)?(-dirty)?\n", ended.out)


@pytest.mark.parametrize(
    ("rank_name", "count_name"),
    [
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ],
)
def test_launcher_environment(perf: Perf, rank_name: str, count_name: str) -> None:
    shared = {count_name: "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    children = [perf.start("--mode", "bidir", *FEW, env=shared | {rank_name: str(rank)}) for rank in range(2)]
    assert [wait_for_end(child).code for child in children] == [OK, OK]


def test_torchrun_store_keeps_its_port(perf: Perf) -> None:
    import socket

    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        shared["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        children = [perf.start("--mode", "ring", *FEW, env=shared | {"RANK": str(rank)}) for rank in range(2)]
        assert [wait_for_end(child).code for child in children] == [OK, OK]


def test_environment_contradicts(perf: Perf) -> None:
    ended = perf.run("--mode", "ring", "--nranks", 4, env={"RANK": "0", "WORLD_SIZE": "2"})
    assert ended.code == USAGE
    assert "--nranks 4, but WORLD_SIZE is 2" in ended.err


def test_clean_env_is_clean() -> None:
    assert not any(name.startswith("FAKENET_") for name in clean_env())
