# SPDX-License-Identifier: Apache-2.0
"""The commands of ranks, by the place where they run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from harpctl.errors import HarpError
from harpctl.ssh import SSH
from harplab.bench.places import LabHosts, LoopbackHosts, SshHosts, parse_proc_stat
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from harplab.perf.hosts import CpuTimes, Program
from harplab.perf.job import PerfJob, run_perf

JOB = PerfJob("stream", (8, 1024), iterations=10)


@pytest.fixture
def no_compiler_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harplab.lab.lab.unprivileged_words", lambda: ["setpriv", "--none"])


def _rank_words(spec: LabSpec, rank: int, cores: tuple[int, ...] = ()) -> list[str]:
    hosts = LabHosts(Lab(spec, prefix="places-"), cores)
    return hosts.command(rank, ["harp-perf"], {"A": "1"})[4:]


def test_ranks_keep_off_the_core_that_receives() -> None:
    steered = LabSpec(rps_cores=2)
    assert _rank_words(steered, 0) == ["taskset", "-c", "1", "env", "A=1", "harp-perf"]
    assert _rank_words(steered, 1) == ["taskset", "-c", "0", "env", "A=1", "harp-perf"]


@pytest.mark.usefixtures("no_compiler_needed")
def test_ranks_lose_their_privileges_inside_their_host() -> None:
    words = _rank_words(LabSpec(rps_cores=2, unprivileged=True), 0)
    assert words == ["setpriv", "--none", "taskset", "-c", "1", "env", "A=1", "harp-perf"]


def test_ranks_run_anywhere_else() -> None:
    assert _rank_words(LabSpec(), 0) == _rank_words(LabSpec(rps_cores=1), 0) == ["env", "A=1", "harp-perf"]


def test_ranks_keep_to_given_cores_in_turn() -> None:
    for rank, core in enumerate(("4", "2", "4")):
        words = ["taskset", "-c", core, "env", "A=1", "harp-perf"]
        assert _rank_words(LabSpec(hosts=3), rank, (4, 2)) == words
        assert LoopbackHosts(3, (4, 2)).command(rank, ["harp-perf"], {"A": "1"}) == words
    assert LoopbackHosts().command(0, ["harp-perf"], {"A": "1"}) == ["env", "A=1", "harp-perf"]


def test_proc_stat_counts_softirq_and_not_idle_or_guest() -> None:
    text = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert parse_proc_stat(text) == CpuTimes(1.63, 0.13)
    passed = parse_proc_stat(text).since(CpuTimes(0.63, 0.03))
    assert passed.busy_s == pytest.approx(1.0)
    assert passed.interrupt_s == pytest.approx(0.1)
    with pytest.raises(HarpError, match="no line 'cpu'"):
        parse_proc_stat("cpu0 1 2 3\n")


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaches every host by running the command here; one host refuses."""
    file = tmp_path / "ssh"
    file.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\n'
        '[ "$1" = dead ] && { echo "ssh: connect: no route" >&2; exit 255; }\n'
        'shift\nexec sh -c "$*"\n'
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("fake_ssh")
def test_hosts_over_ssh_get_the_files_and_keep_nothing(fake_perf: Path, fake_plugin: Path) -> None:
    library = fake_plugin.with_name("libnccl.so.2")
    library.write_text("nccl")
    program = Program(fake_perf, fake_plugin, {"NCCL_LIB": str(library), "NOTE": "two words; $HOME"})
    with SshHosts(["gpu1", "me@gpu2"], "eth1") as hosts:
        placed = hosts.place(program)
        assert hosts.place(program) == placed
        command = hosts.command(1, ["echo", "hi"], {"A": placed.env["NCCL_LIB"]})
        assert command[:-1] == [*SSH, "--", "me@gpu2"]
        assert hosts.rendezvous().startswith("gpu1:")
        assert hosts.env(0) == {"HARP_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}
        folders = list(hosts._folders.values())
        assert len(folders) == 2
        for folder in folders:
            assert len(list(Path(folder).iterdir())) == 3
            assert any(file.read_bytes() == b"nccl" for file in Path(folder).iterdir())
        done = run_perf(hosts, program, JOB)
        assert done.report.plugin.startswith(folders[0])
        assert done.cpu.busy_s >= 0
    assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.usefixtures("fake_ssh")
def test_a_host_out_of_reach_is_named() -> None:
    with (
        pytest.raises(HarpError, match="on dead failed: ssh: connect: no route"),
        SshHosts(["gpu1", "dead"]),
    ):
        pass
