# SPDX-License-Identifier: Apache-2.0
"""A job that waits reports exactly what keeps it, in its log and in its statistics."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harpctl.host.host import Host
from harpctl.stats.files import find_processes
from harpctl.stats.sample import sample_of
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import Job, drop_no_more, drop_packets, poll_until
from tests.lab.remote import RemotePeer

pytestmark = [pytest.mark.lab]
MakeLab = Callable[[LabSpec], Lab]
LONG = ("--iters", "10000000", "--warmup", "1")
CAP_MBPS = 100.0  # it leaves the cores to others
STALL_S = 2  # in place of the 10 s of a job
NAMED_S = 30.0  # as a job is promised for 10 s; the rest is what a busy machine needs
WAITED = "NCCL has waited for "
PORT = re.compile(r": TCP connections for data are accepted on port (\d+)")
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
NOBODY = "this engine's thread has not run for "
STARVED = "this engine's thread has waited for core 0 for "


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Provide the environment of jobs, with a folder of their own in which harpctl finds their statistics."""
    monkeypatch.setenv("HARP_STATS_DIR", str(tmp_path / "stats"))
    return {
        "HARP_STATS_DIR": str(tmp_path / "stats"),
        "HARP_STALL_TIME": str(STALL_S),
        "HARP_PEER_TIMEOUT": "120",
    }


def _read_session(pid: int) -> dict[str, Any]:
    (process,) = find_processes(Host(), pid).processes
    (row,) = process.page.tables["session"]
    return row


def _read_stall(pid: int) -> tuple[str, str]:
    row = _read_session(pid)
    return str(row["stall"]), str(row["stall_eni"])


def _sent_messages(pid: int) -> int:
    rows = [row for process in find_processes(Host(), pid).processes for row in process.page.tables["session"]]
    return sum(int(row["sent_messages"]) for row in rows)


def _is_moving(job: Job) -> bool:
    return all(_sent_messages(rank.pid) for rank in job.ranks)


def _has_line(job: Job, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in job.log(0).splitlines())


def _tcp_ports(job: Job) -> str:
    poll_until("the ports are logged", lambda: all(PORT.search(job.log(rank)) for rank in range(2)))
    return ", ".join(PORT.findall(job.log(0)) + PORT.findall(job.log(1)))


def _problem_in_top(pid: int) -> str:
    """Return what `harpctl top` says of a process."""
    before = find_processes(Host())
    time.sleep(0.6)  # engines write four times a second
    return {one.pid: one.problem for one in sample_of(before, find_processes(Host())).processes}[pid]


def test_each_cause_is_named(make_lab: MakeLab, plugin_file: Path, env: dict[str, str], tmp_path: Path) -> None:
    """Jobs that share nothing but two hosts, each with another fault at the same time."""
    lab = make_lab(LabSpec(enis=6, cap_mbps=CAP_MBPS))
    drivers = {"stopped": "udp", "udp": "udp", "tcp": "tcp", "alone": "udp+tcp", "one_of_two": "udp+tcp"}
    enis = {"stopped": "eni0", "udp": "eni1", "tcp": "eni2", "alone": "eni3", "one_of_two": "eni4,eni5"}
    with contextlib.ExitStack() as stack:
        jobs = {
            name: stack.enter_context(
                Job(
                    lab,
                    plugin_file,
                    mode="bidir",
                    words=LONG,
                    env={**env, "HARP_DRIVER": driver},
                    ifname=enis[name],
                    meeting=tmp_path / name,
                )
            )
            for name, driver in drivers.items()
        }
        poll_until("messages move", lambda: all(map(_is_moving, jobs.values())))
        pids = {name: job.ranks[0].pid for name, job in jobs.items()}
        ports = _tcp_ports(jobs["tcp"])
        os.kill(jobs["stopped"].ranks[1].pid, signal.SIGSTOP)
        for host in range(2):
            drop_packets(lab, host, "ip protocol udp", "eni1")
            drop_packets(lab, host, f"tcp dport {{ {ports} }}", "eni2")
        for eni in (3, 5):
            lab.faults(1, eni).blackhole()
        began = time.monotonic()
        waiting = {
            "stopped": ("peer stopped", ""),
            "udp": ("no packet gets through", "eni1"),
            "tcp": ("no packet gets through", "eni2"),
            "alone": ("peer unreachable", "eni3"),
            "one_of_two": ("", ""),
        }
        unknown, seen = {name for name in waiting if waiting[name][0]}, {}
        while unknown:
            seen = {name: _read_stall(pids[name]) for name in unknown}
            unknown -= {name for name in seen if seen[name] == waiting[name]}
            assert time.monotonic() - began < NAMED_S, seen
        assert _read_stall(pids["one_of_two"]) == waiting["one_of_two"]
        tails = {
            "stopped": "its kernel answers but its process does not",
            "udp": "nothing sent by UDP from eni1 is acknowledged",
            "tcp": "nothing sent by TCP from eni2 is acknowledged",
            "alone": "nothing there answers",
        }
        poll_until("the log lines are there", lambda: all(_has_line(jobs[n], WAITED, tails[n]) for n in tails))
        poll_until("and the lost interface", lambda: _has_line(jobs["one_of_two"], "eni5"))
        assert not _has_line(jobs["one_of_two"], "NCCL has waited")
        lost = re.compile(r"eni5 to 10\.77\.5|interface (eni5|10\.77\.5\.\d+ of vm): all")
        poll_until("the lost interface is named", lambda: bool(lost.search(_problem_in_top(pids["one_of_two"]))))
        assert "no packet gets through (eni1)" in _problem_in_top(pids["udp"])
        os.kill(jobs["stopped"].ranks[1].pid, signal.SIGCONT)
        for host in range(2):
            drop_no_more(lab, host, "eni1")
        poll_until("they go on", lambda: _read_stall(pids["stopped"]) == _read_stall(pids["udp"]) == ("", ""))


def test_who_has_not_come(make_lab: MakeLab, plugin_file: Path, env: dict[str, str]) -> None:
    """A connect and an accept that wait for each other behind a firewall; then a receive that is missing."""
    lab = make_lab(LabSpec(enis=2))
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        handle = receiver.call("listen")
        sender.call("log")  # it is up
        drop_packets(lab, 0, "meta l4proto tcp")
        receiver.start("accept")
        sender.start("connect", handle)
        time.sleep(STALL_S + 2)  # it is what is to be waited for
        drop_no_more(lab, 0)
        assert sender.answer() == 0
        assert receiver.answer() == 0
        accepting = [line for line in receiver.call("log") if "an accept of NCCL" in line]
        connecting = [line for line in sender.call("log") if "a connect of NCCL" in line]
        assert len(accepting) == len(connecting) == 1
        address = lab.address(0)
        assert re.search(rf"has waited for \d s for anybody to connect to {address}:", accepting[0])
        assert re.search(rf"has waited for \d s for {address}:", connecting[0])
        assert "a firewall that drops TCP" in connecting[0]
        sender.start("transfer", 1, 1 << 20)
        poll_until("it is seen", lambda: _read_stall(sender.child.pid) == ("no receive at the peer", ""))
        assert receiver.call("transfer", 1, 1 << 20) == [0]
        assert sender.answer() == [0]
        waited = [line for line in sender.call("log") if "NCCL has waited" in line]
        assert len(waited) == 1
        assert "it has posted no receive" in waited[0]
        assert not [line for line in receiver.call("log") if "NCCL" in line]


@contextlib.contextmanager
def _stopped_thread(thread: int) -> Iterator[None]:
    """Stop one thread of a process, and no other."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    yield
    os.waitpid(thread, 0x40000000)  # __WALL: it has stopped
    assert libc.ptrace(PTRACE_DETACH, thread, None, None) == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def _spinning_on(core: int) -> Iterator[None]:
    """Keep a core busy."""
    words = ["taskset", "-c", str(core), "python3", "-c", "while True: pass"]
    with subprocess.Popen(words) as spinner:
        try:
            yield
        finally:
            spinner.kill()


def _thread_conf(folder: Path) -> str:
    folder.mkdir()
    (folder / "ztcp0.conf").write_text(
        "[eni]\ninterface = eni0\n[engine]\nmode = thread\ncores = 0\n[transport]\ndriver = udp\n"
    )
    return str(folder)


def test_an_engine_without_a_core(
    make_lab: MakeLab, plugin_file: Path, env: dict[str, str], tmp_path: Path
) -> None:
    """Others have its core nearly all of the time; then its thread does not run at all."""
    lab = make_lab(LabSpec(enis=2))
    conf = {**env, "HARP_CONF_DIR": _thread_conf(tmp_path / "conf")}
    with Job(lab, plugin_file, mode="bidir", words=LONG, env=conf) as job:
        poll_until("messages move", lambda: _is_moving(job))
        pid = job.ranks[0].pid
        (process,) = find_processes(Host(), pid).processes
        (engine,) = process.page.tables["engine"]
        thread = int(engine["thread"])
        with _spinning_on(0):
            os.setpriority(os.PRIO_PROCESS, thread, 19)
            poll_until("it is named", lambda: _read_stall(pid) == ("engine lacks a core", ""))
            poll_until("the log line is there", lambda: _has_line(job, STARVED))
            assert not _has_line(job, "NCCL has waited")
            os.setpriority(os.PRIO_PROCESS, thread, 0)
        before = job.log(0).count(NOBODY)
        with _stopped_thread(thread):
            poll_until("the log line is there", lambda: job.log(0).count(NOBODY) > before, NAMED_S)
        poll_until("it goes on", lambda: _is_moving(job))
