# SPDX-License-Identifier: Apache-2.0
"""Small sends are done at once.

What was reported as sent arrives, though the sender closes at once, over links that lose. A peer that dies or
stops before it arrives is an error, and holds nobody up for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.conformance import abi
from tests.lab.job import drop_packets, dropped_packets, poll_until
from tests.lab.peer import ABI
from tests.lab.remote import RemotePeer, connect_peers

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
LOSS = "meta l4proto udp numgen random mod 10 < 3"  # 30 %
ROUNDS = 5
COPY_MAX = 32_768  # the largest message that is copied
EARLY = 4  # messages that the peer takes before their receives are posted
SOON_S = 1.0  # five times what 999 of 1,000 take in the simulator (tests/script/test_loss_tail.c)
LATE_MAX = 1  # the number of ROUNDS that take longer: a loaded machine gives no core for so long
BUSY_S = 10.0  # what such a machine may take to end a process, or to see that one has ended
TIMEOUT_S = 2


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("size", "engine"), [(8, "inline"), (COPY_MAX, "inline"), (COPY_MAX, "thread")])
def test_sender_leaves_at_once(make_lab: MakeLab, plugin_file: Path, size: int, engine: str) -> None:
    """Test returns done, the sender closes, finalizes and ends; receives posted later get every byte."""
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_ENGINE": engine}
    for host in range(2):
        drop_packets(lab, host, LOSS)
    late = 0
    for _ in range(ROUNDS):
        with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
            connect_peers(receiver, sender)
            assert sender.call("transfer", EARLY, size) == [0] * EARLY
            start = time.monotonic()
            assert not [line for line in sender.call("close") if line.startswith("WARN")]
            assert sender.child.stdin is not None
            sender.child.stdin.close()
            assert sender.child.wait(BUSY_S) == 0
            late += time.monotonic() - start >= SOON_S
            assert receiver.call("transfer", EARLY, size) == [0] * EARLY
    assert late <= LATE_MAX
    assert dropped_packets(lab, 0) > 0


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_peer_dies_before_it_arrives(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """The next call has the error, and close waits for nobody."""
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_ENGINE": engine}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect_peers(receiver, sender)
        receiver.stop()
        assert sender.call("transfer", EARLY, 1000) == [0] * EARLY
        receiver.child.kill()
        receiver.child.wait()
        poll_until("the error", lambda: sender.call("transfer", 1, 8) != [0], BUSY_S)
        assert sender.call("transfer", 1, 8) == [abi.remote_error(ABI)]
        start = time.monotonic()
        warns = [line for line in sender.call("close") if line.startswith("WARN")]
        assert time.monotonic() - start < BUSY_S
        assert len(warns) == 1
        assert "the process ended" in warns[0]


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_peer_is_stopped_when_the_sender_leaves(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """Close does not wait; once the peer timeout has passed, the log says what did not arrive."""
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_ENGINE": engine, "HARP_PEER_TIMEOUT": str(TIMEOUT_S)}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect_peers(receiver, sender)
        receiver.stop()
        assert sender.call("transfer", EARLY, 1000) == [0] * EARLY
        start = time.monotonic()
        lines = sender.call("close")
        assert time.monotonic() - start < TIMEOUT_S / 2

        def warns() -> list[str]:
            lines.extend(sender.call("log"))
            return [line for line in lines if line.startswith("WARN")]

        poll_until("the warning", lambda: bool(warns()), TIMEOUT_S + BUSY_S)
        assert time.monotonic() - start > TIMEOUT_S * 0.9
        (warn,) = warns()
        assert f"{EARLY} messages" in warn
