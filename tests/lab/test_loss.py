# SPDX-License-Identifier: Apache-2.0
"""Random loss of superframes and packets, and loss in bursts while connecting: every byte arrives right."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import (
    UNTIL_FINISHED,
    Job,
    drop_for_a_while,
    drop_no_more,
    drop_packets,
    dropped_packets,
    poll_until,
)
from tests.lab.remote import RemotePeer, transfer_messages

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
SIZES = "8,1000,16384,131072,1M"
RANDOM = "meta l4proto {{ tcp, udp }} numgen random mod 1000 < {permille}"
CONFIRM = "ip length 76"  # 24 bytes behind headers of IP and of TCP with time stamps
UNAUTHENTICATED_S = 5  # without a valid HELLO within this time a client is refused
BURST = "meta l4proto { tcp, udp } numgen inc mod 10 < 3"  # 30 %, three in a row


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("permille", "iterations", "engine", "paths", "offload"),
    [
        (1, 300, "inline", 1, Offload.STOCK),
        (10, 100, "thread", 4, Offload.OFF),
        (100, 40, "inline", 4, Offload.STOCK),
        (100, 40, "inline", 4, Offload.OFF),
    ],
)
def test_random_loss(
    make_lab: MakeLab,
    plugin_file: Path,
    permille: int,
    iterations: int,
    engine: str,
    paths: int,
    offload: Offload,
) -> None:
    lab = make_lab(LabSpec(enis=2, offload=offload))
    for host in range(2):
        drop_packets(lab, host, RANDOM.format(permille=permille))
    env = {"HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    words = ("--iters", str(iterations), "--warmup", "4")
    with Job(lab, plugin_file, mode="bidir", sizes=SIZES, words=words, env=env) as job:
        job.finish()
        assert dropped_packets(lab, 0) + dropped_packets(lab, 1) > 0
        assert job.statistics()["lost_packets"] > 0


def test_bursts_while_connecting(make_lab: MakeLab, plugin_file: Path) -> None:
    """Each connection's TCP, its handshake and its first messages go through it."""
    lab = make_lab(LabSpec(enis=2))
    for host in range(2):
        drop_packets(lab, host, BURST)
    words = ("--iters", "8", "--warmup", "2", "--connections", "2")
    # The kernel repeats a segment six times in ten seconds: half of these arrive.
    env = {"HARP_PEER_TIMEOUT": "60"}
    with Job(lab, plugin_file, mode="alltoall", sizes="8,64K", words=words, env=env) as job:
        job.finish()
        assert dropped_packets(lab, 0) > 0
        assert dropped_packets(lab, 1) > 0


def test_last_word_of_the_handshake_is_late(make_lab: MakeLab, plugin_file: Path) -> None:
    """The server waits longer than for an unauthenticated client, and the client waits for the server."""
    lab = make_lab(LabSpec())
    env = {"HARP_PEER_TIMEOUT": "30"}  # old kernels repeat a SYN ever more rarely
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        handle = receiver.call("listen")
        receiver.start("accept")
        drop_packets(lab, 0, CONFIRM)
        sender.start("connect", handle)
        poll_until("the CONFIRM is lost", lambda: dropped_packets(lab, 0) > 0)
        lost = time.monotonic()
        waited_s = UNAUTHENTICATED_S + 1
        poll_until("an unauthenticated client would have been refused", lambda: time.monotonic() > lost + waited_s)
        drop_no_more(lab, 0)
        assert receiver.answer() == 0
        assert sender.answer() == 0
        transfer_messages(receiver, sender, 8, 100_000)


@pytest.mark.usefixtures("driver")
def test_blackout_then_on(make_lab: MakeLab, plugin_file: Path) -> None:
    """All is lost for a while, shorter than the peer timeout: the job goes on where it was."""
    lab = make_lab(LabSpec(enis=2))
    with Job(lab, plugin_file, mode="bidir", sizes="64K", words=UNTIL_FINISHED) as job:
        job.until_moving()
        with drop_for_a_while(lab, "meta l4proto { tcp, udp }"):
            # Several rounds of retransmission, of whichever side has something to send.
            start = dropped_packets(lab, 0) + dropped_packets(lab, 1)
            while dropped_packets(lab, 0) + dropped_packets(lab, 1) < start + 20:
                assert not any(child.poll() is not None for child in job.ranks)
        job.until_moving()
        job.finish()
