# SPDX-License-Identifier: Apache-2.0
"""Peers that die or stop, links that go, and UDP that is blocked.

Either the job survives, or an error names the cause in time. The bounds are the promises (dead process: 1 s,
silence: HARP_PEER_TIMEOUT + 1 s) with a margin for a machine whose two cores are busy with other things.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import Command
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec
from tests.lab.job import (
    EXIT_PLUGIN,
    UNTIL_FINISHED,
    Job,
    drop_packets,
    dropped_packets,
    poll_until,
    statistics_of,
)
from tests.lab.remote import RemotePeer, connect_peers, transfer_messages

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
LONG = ("--iters", "10000000", "--warmup", "1", "--timeout", "60")  # one batch: always in mid-transfer
DEAD_S = 1.0
MARGIN_S = 4.0
SIZES = "256K"
IDLE_PASSES_MAX = 200_000  # an engine that doesn't sleep does some 600,000 a second; transfer included


def _start_job(lab: Lab, plugin: Path, *, mode: str = "bidir", **env: str) -> Job:
    return Job(lab, plugin, mode=mode, sizes=SIZES, words=LONG, env=env)


def _until_error(job: Job, rank: int, within_s: float) -> str:
    """Wait for a rank's plugin to fail, and return the WARN that it logged before."""
    start = time.monotonic()
    poll_until(f"rank {rank} logs a WARN", lambda: bool(job.warns(rank)), within_s + 30)
    took_s = time.monotonic() - start
    assert took_s < within_s, f"{job.warns(rank)} only after {took_s:.1f} s"
    return "\n".join(job.warns(rank))


def _cut_off(lab: Lab, host: int) -> None:
    """Take down all links of a host: its ranks can't notify each other either."""
    for eni in range(lab.spec.enis):
        lab.set_link(host, eni, up=False)


def _assert_remote_error(job: Job, rank: int) -> None:
    poll_until("the rank ends", lambda: job.ranks[rank].poll() is not None)
    assert job.ranks[rank].returncode == EXIT_PLUGIN
    assert "remote error (6)" in job.log(rank)


@pytest.mark.parametrize(
    ("victim", "mode", "engine"), [(0, "stream", "thread"), (1, "stream", "inline"), (1, "bidir", "thread")]
)
def test_peer_killed(make_lab: MakeLab, plugin_file: Path, victim: int, mode: str, engine: str) -> None:
    lab = make_lab(LabSpec(enis=2))
    survivor = 1 - victim
    with _start_job(lab, plugin_file, mode=mode, HARP_ENGINE=engine, HARP_PEER_TIMEOUT="60") as job:
        job.until_moving()
        pid = job.ranks[victim].pid
        job.ranks[victim].kill()
        warn = _until_error(job, survivor, DEAD_S + MARGIN_S)
        _assert_remote_error(job, survivor)
        assert f"({lab.address(victim)}) process {pid}" in warn
        assert "eni0" in warn
        assert warn.count("WARN ") <= (1 if mode == "stream" else 2)  # one per comm


@pytest.mark.parametrize("victim", [0, 1])
def test_peer_stopped_for_long(make_lab: MakeLab, plugin_file: Path, victim: int) -> None:
    """The peer's kernel answers, so the peer is not dead: it is waited for, whatever the timeout."""
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_PEER_TIMEOUT": "1"}
    with Job(lab, plugin_file, mode="bidir", sizes=SIZES, words=UNTIL_FINISHED, env=env) as job:
        job.until_moving()
        job.ranks[victim].send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        poll_until("two timeouts have passed", lambda: time.monotonic() > stopped + 2)
        assert job.ranks[1 - victim].poll() is None
        job.ranks[victim].send_signal(signal.SIGCONT)
        job.until_moving()
        job.finish()


@pytest.mark.parametrize(("mode", "timeout_s"), [("stream", 1), ("bidir", 2)])
def test_link_down_for_good(make_lab: MakeLab, plugin_file: Path, mode: str, timeout_s: int) -> None:
    """Both ranks find it by themselves; a receiver learns it from its control connection alone."""
    lab = make_lab(LabSpec(enis=2))
    with _start_job(lab, plugin_file, mode=mode, HARP_PEER_TIMEOUT=str(timeout_s)) as job:
        job.until_moving()
        _cut_off(lab, 1)
        for rank in range(2):
            warn = _until_error(job, rank, timeout_s + 1 + MARGIN_S)
            assert "eni0" in warn
            assert f"({lab.address(1 - rank)}) process {job.ranks[1 - rank].pid}" in warn
        for rank in range(2):
            _assert_remote_error(job, rank)


def test_host_gone(make_lab: MakeLab, plugin_file: Path) -> None:
    """The interfaces vanish with their addresses, as when a namespace is deleted: no FIN, no reset comes."""
    lab = make_lab(LabSpec(enis=2))
    with _start_job(lab, plugin_file, HARP_PEER_TIMEOUT="2") as job:
        job.until_moving()
        pid = job.ranks[1].pid
        run_command(Command(("ip", "-netns", lab.hosts[0], "link", "delete", "eni0")))
        run_command(Command(("ip", "-netns", lab.hosts[0], "link", "delete", "eni1")))
        warn = _until_error(job, 0, 2 + 1 + MARGIN_S)
        _assert_remote_error(job, 0)
        assert "eni0" in warn
        assert f"process {pid}" in warn


def test_link_down_for_a_while(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_PATHS": "4", "HARP_PEER_TIMEOUT": "10"}
    with Job(lab, plugin_file, mode="bidir", sizes=SIZES, words=UNTIL_FINISHED, env=env) as job:
        job.until_moving()
        lab.set_link(1, 0, up=False)
        down = time.monotonic()
        poll_until("a tenth of the peer timeout has passed", lambda: time.monotonic() > down + 1)
        lab.set_link(1, 0, up=True)
        job.until_moving()
        job.finish(may_fall_back=True)


@pytest.mark.parametrize("blind", [0, 1])
def test_udp_blocked(make_lab: MakeLab, plugin_file: Path, blind: int) -> None:
    """A firewall that lets TCP through and UDP not, from the start: reported after the peer timeout."""
    lab = make_lab(LabSpec(enis=2))
    drop_packets(lab, blind, "meta l4proto udp")
    with _start_job(lab, plugin_file, mode="stream", HARP_PEER_TIMEOUT="2") as job:
        poll_until("a connection", lambda: "connected to" in job.log(0))
        warn = _until_error(job, 0, 2 + 1 + MARGIN_S)
        _assert_remote_error(job, 0)
        assert "is UDP allowed between the hosts?" in warn
        assert "eni0" in warn
        assert f"({lab.address(1)})" in warn
        assert dropped_packets(lab, blind) > 0


def test_udp_blocked_later(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec(enis=2))
    with _start_job(lab, plugin_file, mode="stream", HARP_PEER_TIMEOUT="1") as job:
        job.until_moving()
        drop_packets(lab, 1, "meta l4proto udp")
        warn = _until_error(job, 0, 1 + 1 + MARGIN_S)
        assert "is UDP allowed between the hosts?" in warn


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_idle_after_the_peer_left(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """Whoever has nothing to wait for any more sleeps."""
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_ENGINE": engine}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect_peers(receiver, sender)
        transfer_messages(receiver, sender, 8, 100_000)
        sender.child.kill()
        receiver.call("hushed", 1.0)
        passes = statistics_of("\n".join(receiver.call("close")))["passes"]
        assert passes < IDLE_PASSES_MAX
