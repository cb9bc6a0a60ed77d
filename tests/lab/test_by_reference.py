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

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import (
    EXIT_PLUGIN,
    UNTIL_FINISHED,
    Job,
    drop_no_more,
    drop_packets,
    dropped_packets,
    poll_until,
    statistics_of,
)
from tests.lab.remote import RemotePeer, connect_peers, transfer_messages

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
BARE = {"HARP_TCP_CHECKSUM": "off", "HARP_ZEROCOPY": "on"}
CARRIERS = pytest.mark.parametrize("carrier", ["udp+tcp", "tcp"])
SIZES = "512K"
LOST_PACKETS = 300
STILL_S, STILL_BYTES = 0.3, 64 << 10  # less than this in such a time are probes
ROUNDS = 4
DEAD_S = 5.0  # 1 s is promised; the rest is what a busy machine needs
CARRIED_BYTES = 1 << 20
MESSAGES, MESSAGE_BYTES = 8, 8 << 20


def _make_job(lab: Lab, plugin: Path, meeting: Path, carrier: str, words: tuple[str, ...] = UNTIL_FINISHED) -> Job:
    env = {**BARE, "HARP_DRIVER": carrier, "HARP_IFNAME": "eni", "HARP_PEER_TIMEOUT": "20"}
    return Job(lab, plugin, mode="bidir", sizes=SIZES, words=words, env=env, meeting=meeting)


def _until_referenced(job: Job) -> None:
    """Wait until payload has gone by reference."""
    job.until_moving(8 << 20)


def _until_both_carry(job: Job) -> None:
    """Wait until each interface has received payload."""
    before = job.received_by_eni(1)
    poll_until(
        "both carry",
        lambda: all(count > before[name] + CARRIED_BYTES for name, count in job.received_by_eni(1).items()),
    )


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


def _lose_packets(lab: Lab, _job: Job) -> None:
    """Lose packets, which the kernel repeats from the buffers; return when many are lost."""
    hops = [(host, f"eni{eni}") for host in range(2) for eni in range(2)]
    for host, ifname in hops:
        drop_packets(lab, host, "numgen random mod 50 == 0", ifname)
    poll_until("many are lost", lambda: sum(dropped_packets(lab, *hop) for hop in hops) > LOST_PACKETS)


def _stop_rank(_lab: Lab, job: Job) -> None:
    """Stop a rank until nothing moves, as buffers and pipe are full."""
    os.kill(job.ranks[1].pid, signal.SIGSTOP)

    def received() -> int:
        return sum(sum(job.received_by_eni(rank).values()) for rank in range(2))

    def is_still() -> bool:
        before = received()
        time.sleep(STILL_S)  # nothing is to move for so long
        return received() - before < STILL_BYTES

    poll_until("nothing moves", is_still)
    os.kill(job.ranks[1].pid, signal.SIGCONT)


@CARRIERS
@pytest.mark.parametrize("hurt", [_lose_packets, _stop_rank])
def test_all_is_right_after(
    make_lab: MakeLab, plugin_file: Path, tmp_path: Path, hurt: Callable[[Lab, Job], None], carrier: str
) -> None:
    """What was referenced meanwhile, and is sent late or again, is what was to be sent."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        hurt(lab, job)
        job.until_moving()
        _assert_right(job)


def _count_ended(job: Job) -> int:
    """Count the TCP connections that the ranks have ended, by their statistics."""
    return sum(int(row["tcp_ends"]) for rank in range(2) for row in job.tables(rank)["engine"])


@CARRIERS
def test_a_path_that_is_given_up(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """The path's bytes wait in the kernel, its messages go another way, and it is reset when it is ended."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        for turn in range(ROUNDS):
            ifname, ended = f"eni{turn % 2}", _count_ended(job)
            for host in range(2):
                drop_packets(lab, host, "tcp flags & (syn|fin) == 0x0", ifname)
            poll_until("a connection is ended", lambda ended=ended: _count_ended(job) > ended)  # type: ignore[misc]
            for host in range(2):
                drop_no_more(lab, host, ifname)
            _until_both_carry(job)
        _assert_right(job)


@CARRIERS
def test_a_peer_that_is_killed(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """The connections end with references in them: no SIGPIPE, an error instead."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, tmp_path / "meeting", carrier) as job:
        _until_referenced(job)
        job.ranks[1].kill()
        killed = time.monotonic()
        poll_until("the other says so", lambda: bool(job.warns(0)))
        assert time.monotonic() - killed < DEAD_S
        poll_until("the other rank ends", lambda: job.ranks[0].poll() is not None)
        assert job.ranks[0].returncode == EXIT_PLUGIN


def test_fork_and_munmap(make_lab: MakeLab, plugin_file: Path) -> None:
    """A child with copies of the buffers, and buffers that are unmapped once their send is done."""
    lab, env = make_lab(LabSpec(enis=2)), {**BARE, "HARP_DRIVER": "udp+tcp"}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect_peers(receiver, sender)
        receiver.start("transfer", MESSAGES, MESSAGE_BYTES)
        assert sender.call("forked_send", MESSAGES, MESSAGE_BYTES) == [0] * MESSAGES
        assert receiver.answer() == [0] * MESSAGES
        assert statistics_of("\n".join(sender.call("close")))["tx_by_reference"] >= MESSAGES


def test_close_with_sends_under_way(make_lab: MakeLab, plugin_file: Path) -> None:
    """Buffers are unmapped after the close: what arrives of them is right or an error."""
    lab, env = make_lab(LabSpec(enis=2)), {**BARE, "HARP_DRIVER": "udp+tcp"}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect_peers(receiver, sender)
        transfer_messages(receiver, sender, MESSAGES, MESSAGE_BYTES)  # the first ones go by datagrams
        receiver.start("transfer", MESSAGES, MESSAGE_BYTES)
        log = sender.call("abandoned_send", MESSAGES, MESSAGE_BYTES)
        assert statistics_of("\n".join(log))["tx_by_reference"]
        assert any(receiver.answer())  # one of the results; the peer ends over a wrong byte
