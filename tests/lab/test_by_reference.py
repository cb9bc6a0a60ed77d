# SPDX-License-Identifier: Apache-2.0
"""Payload by reference never shows what the sender has written since.

Without the checksum, so that only the comparison of whole messages finds it. harp-perf writes over a
buffer as soon as its send is done.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.plan import LabSpec
from tests.lab.job import EXIT_PLUGIN, UNTIL_FINISHED, Job, drop, drop_no_more, statistics_of, until
from tests.lab.remote import RemotePeer, connect

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
BARE = {"HARP_TCP_CHECKSUM": "off", "HARP_ZEROCOPY": "on"}
CARRIERS = pytest.mark.parametrize("carrier", ["udp+tcp", "tcp"])
SIZES = "512K"
STOPPED_S = 3.0
ROUNDS = 6
MESSAGES, MESSAGE_BYTES = 8, 8 << 20
ROUND_S = 0.4


def _job(lab: Lab, plugin: Path, meeting: Path, carrier: str, words: tuple[str, ...] = UNTIL_FINISHED) -> Job:
    env = {**BARE, "HARP_DRIVER": carrier, "HARP_IFNAME": "eni", "HARP_PEER_TIMEOUT": "20"}
    return Job(lab, plugin, mode="bidir", sizes=SIZES, words=words, env=env, meeting=meeting)


def _until_referenced(job: Job) -> None:
    """Wait until payload has gone by reference."""
    job.until_moving(8 << 20)


def _assert_right(job: Job) -> None:
    """End the job; interfaces may have been reported as lost meanwhile, no byte may be wrong."""
    job.end()
    assert job.wait() == [0, 0]
    results = job.report().results
    assert results
    assert all(result.messages > 0 and result.wrong == 0 for result in results)
    statistics = job.statistics()
    assert statistics["tx_by_reference"] > 50
    assert statistics["tx_unchecked"] > 50
    assert not statistics["reference_refusals"]


@CARRIERS
def test_loss(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """The kernel repeats segments from the buffers, out of order: they are what was sent."""
    lab = make_lab(LabSpec(enis=2))
    with _job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        for host in range(2):
            for eni in range(2):
                drop(lab, host, "numgen random mod 50 == 0", f"eni{eni}")
        time.sleep(STOPPED_S)  # for so long packets are lost
        _assert_right(job)


@CARRIERS
def test_a_path_that_is_given_up(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """Its bytes wait in the kernel, its messages go another way, and it is reset when it is ended."""
    lab = make_lab(LabSpec(enis=2))
    with _job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        for turn in range(ROUNDS):
            ifname = f"eni{turn % 2}"
            for host in range(2):
                drop(lab, host, "tcp flags & (syn|fin) == 0x0", ifname)
            time.sleep(ROUND_S)  # how long the interface loses all
            for host in range(2):
                drop_no_more(lab, host, ifname)
            time.sleep(ROUND_S)
            job.until_moving()
        _assert_right(job)
        assert job.statistics()["tcp_ends"]


@CARRIERS
def test_a_peer_that_stops(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """Buffers and pipe are full meanwhile; then all goes on."""
    lab = make_lab(LabSpec(enis=2))
    with _job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        os.kill(job.ranks[1].pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)  # for so long it is stopped
        os.kill(job.ranks[1].pid, signal.SIGCONT)
        job.until_moving()
        _assert_right(job)


@CARRIERS
def test_a_peer_that_is_killed(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """The connections end with references in them: no SIGPIPE, an error instead."""
    lab = make_lab(LabSpec(enis=2))
    with _job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        job.ranks[1].kill()
        until("the other rank ends", lambda: job.ranks[0].poll() is not None)
        assert job.ranks[0].returncode == EXIT_PLUGIN


def test_fork_and_munmap(make_lab: MakeLab, plugin_file: Path) -> None:
    """A child with copies of the buffers, and buffers that are unmapped once their send is done."""
    lab, env = make_lab(LabSpec(enis=2)), {**BARE, "HARP_DRIVER": "udp+tcp"}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect(receiver, sender)
        receiver.start("transfer", MESSAGES, MESSAGE_BYTES)
        assert sender.call("forked_send", MESSAGES, MESSAGE_BYTES) == [0] * MESSAGES
        assert receiver.answer() == [0] * MESSAGES
        assert statistics_of("\n".join(sender.call("close")))["tx_by_reference"] >= MESSAGES


def test_close_with_sends_under_way(make_lab: MakeLab, plugin_file: Path) -> None:
    """Buffers are unmapped after the close: what arrives of them is right or an error."""
    lab, env = make_lab(LabSpec(enis=2)), {**BARE, "HARP_DRIVER": "udp+tcp"}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect(receiver, sender)
        receiver.start("transfer", MESSAGES, MESSAGE_BYTES)
        log = sender.call("abandoned_send", MESSAGES, MESSAGE_BYTES)
        assert statistics_of("\n".join(log))["tx_by_reference"]
        assert any(receiver.answer())  # of the results; the peer ends over a wrong byte
