# SPDX-License-Identifier: Apache-2.0
"""The network goes away while nobody waits for a peer, and comes back, or does not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.conformance import abi
from tests.lab.job import poll_until
from tests.lab.remote import RemotePeer, connect_peers, transfer_messages

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
TIMEOUT_S = 1
OUTAGE_S = 5 * TIMEOUT_S  # Linux gives a connection up after one timeout, or two of a second's timers
MARGIN_S = 4.0
SIZES = (8, 65536, 1 << 20)


def _let_time_pass(seconds: float) -> None:
    end = time.monotonic() + seconds
    poll_until("the time has passed", lambda: time.monotonic() > end)


@contextlib.contextmanager
def _cut_off(
    make_lab: MakeLab,
    plugin_file: Path,
    timeout_s: int,
    outage_s: float,
    enis: int = 1,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[Lab, RemotePeer, RemotePeer]]:
    """Yield a receiver and a sender that were connected, and whose network went away so long ago."""
    lab = make_lab(LabSpec(enis=enis))
    both = {"HARP_PEER_TIMEOUT": str(timeout_s), **env}
    with RemotePeer(lab, 0, plugin_file, both) as receiver, RemotePeer(lab, 1, plugin_file, both) as sender:
        connect_peers(receiver, sender)
        for size in SIZES:
            transfer_messages(receiver, sender, 2, size)
        for eni in range(enis):
            lab.faults(1, eni).blackhole()
        _let_time_pass(outage_s)
        yield lab, receiver, sender


@pytest.mark.parametrize(("engine", "enis"), [("inline", 1), ("thread", 2)])
def test_an_outage_while_nobody_waits(make_lab: MakeLab, plugin_file: Path, engine: str, enis: int) -> None:
    env = {"HARP_ENGINE": engine, "HARP_IFNAME": "eni"}
    with _cut_off(make_lab, plugin_file, TIMEOUT_S, OUTAGE_S, enis, env) as (lab, receiver, sender):
        for eni in range(enis):
            lab.faults(1, eni).clear()
        for size in SIZES:
            transfer_messages(receiver, sender, 2, size)
        for peer in (receiver, sender):
            assert not [line for line in peer.call("log") if "WARN" in line]


@pytest.mark.parametrize("waits", ["receiver", "sender"])
def test_the_peer_timeout_counts_from_when_somebody_waits(
    make_lab: MakeLab, plugin_file: Path, waits: str
) -> None:
    timeout_s = 2
    with _cut_off(make_lab, plugin_file, timeout_s, timeout_s + 1) as (_, receiver, sender):
        who = receiver if waits == "receiver" else sender
        start = time.monotonic()
        assert who.call("transfer", 1, 65536) == [abi.REMOTE]
        took_s = time.monotonic() - start
        assert timeout_s - 0.5 < took_s < timeout_s + MARGIN_S
        log = "\n".join(who.call("log"))
        assert "the network in between is down" in log
        assert "the process ended" not in log


def test_an_outage_ends_before_the_peer_timeout(make_lab: MakeLab, plugin_file: Path) -> None:
    """The receiver waits already when the network comes back."""
    timeout_s = 4
    with _cut_off(make_lab, plugin_file, timeout_s, timeout_s + 1) as (lab, receiver, sender):
        receiver.start("transfer", 1, 65536)
        _let_time_pass(timeout_s / 3)
        lab.faults(1, 0).clear()
        assert sender.call("transfer", 1, 65536) == [abi.SUCCESS]
        assert receiver.answer() == [abi.SUCCESS]
