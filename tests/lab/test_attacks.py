# SPDX-License-Identifier: Apache-2.0
"""Port scans, floods, garbage and replayed packets on every open port: the job does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import statistics_of
from tests.lab.remote import ROOT, RemotePeer, connect_peers, transfer_messages

pytestmark = pytest.mark.lab
pytest.importorskip("scapy", reason="needs scapy: ./harp_setup build")
MakeLab = Callable[[LabSpec], Lab]
ATTACKER = 2  # its host
ATTACK_S = 90
FLOOD = 20_000
CAPTURED = 60  # to each host
REASONS = ("SHORT", "VERSION", "TYPE", "FIELD", "TOKEN", "PATH", "CRC", "DIRECTION")


def _open_ports(lab: Lab, host: int, protocol: str) -> list[str]:
    """List what listens on a host; nothing but the job does."""
    shown = run_command(run_inside(lab.hosts[host], "ss", "-H", "-n", "-l", f"--{protocol}"))
    ports = {line.split()[3].rpartition(":")[2] for line in shown.splitlines()}
    assert ports
    return sorted(ports)


def start_attack(namespace: str, *words: str) -> subprocess.Popen[str]:
    """Start an attack from a namespace."""
    argv = ["ip", "netns", "exec", namespace, sys.executable, "-m", "tests.lab.attack", *words]
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)
    )


def _wait_for_attack(attack: subprocess.Popen[str]) -> Counter[str]:
    output, _ = attack.communicate(timeout=ATTACK_S)
    assert attack.returncode == 0
    return Counter(json.loads(output))


def _attack_meanwhile(
    lab: Lab, attacks: Sequence[Sequence[str]], meanwhile: Callable[[], object]
) -> list[Counter[str]]:
    """Run attacks at once, and something else again and again until they have ended; return their counts."""
    running = [start_attack(lab.hosts[ATTACKER], *words) for words in attacks]
    while any(attack.poll() is None for attack in running):
        meanwhile()
    return [_wait_for_attack(attack) for attack in running]


@contextmanager
def _connected_peers(lab: Lab, plugin: Path, engine: str) -> Iterator[tuple[RemotePeer, RemotePeer]]:
    env = {"HARP_ENGINE": engine, "HARP_PATHS": "2"}
    with RemotePeer(lab, 0, plugin, env) as receiver, RemotePeer(lab, 1, plugin, env) as sender:
        yield receiver, sender


def _close_peers(*peers: RemotePeer) -> Counter[str]:
    """Close both ends; neither has warned. Return the counters."""
    total: Counter[str] = Counter()
    for peer in peers:
        lines = peer.call("close")
        assert not [line for line in lines if line.startswith("WARN")]
        total += statistics_of("\n".join(lines))
    return total


def test_unauthenticated_connections_before_the_peer(make_lab: MakeLab, plugin_file: Path) -> None:
    """All are refused within a bounded time; then the peer connects."""
    lab = make_lab(LabSpec(hosts=3))
    with _connected_peers(lab, plugin_file, "thread") as (receiver, sender):
        handle = receiver.call("listen")
        receiver.start("accept")
        ports = _open_ports(lab, 0, "tcp")
        counts = _wait_for_attack(start_attack(lab.hosts[ATTACKER], "connections", lab.address(0), *ports))
        assert counts["connections"] > 200
        assert counts["closed"] == counts["connections"]
        assert sender.call("connect", handle) == 0
        assert receiver.answer() == 0
        transfer_messages(receiver, sender, 16, 300_000)
        counted = _close_peers(sender, receiver)
        assert counted["handshake_refused"] > 0
        assert counted["connections"] == 2


def test_peer_among_unauthenticated_connections(make_lab: MakeLab, plugin_file: Path) -> None:
    """The peer connects and moves data while they are open."""
    lab = make_lab(LabSpec(hosts=3))
    with _connected_peers(lab, plugin_file, "inline") as (receiver, sender):
        handle = receiver.call("listen")
        receiver.start("accept")
        ports = _open_ports(lab, 0, "tcp")
        attack = start_attack(lab.hosts[ATTACKER], "connections", lab.address(0), *ports)
        assert sender.call("connect", handle) == 0
        assert receiver.answer() == 0
        for _ in range(8):
            transfer_messages(receiver, sender, 16, 300_000)
        attack.kill()
        attack.communicate()
        _close_peers(sender, receiver)


@pytest.mark.usefixtures("driver")
def test_garbage_packets(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec(hosts=3))
    with _connected_peers(lab, plugin_file, "inline") as (receiver, sender):
        connect_peers(receiver, sender)
        words = [("garbage", lab.address(victim), *_open_ports(lab, victim, "udp")) for victim in (0, 1)]
        for counts in _attack_meanwhile(lab, words, lambda: transfer_messages(receiver, sender, 8, 200_000)):
            assert counts["sent"] > 100
        transfer_messages(receiver, sender, 8, 200_000)
        counted = _close_peers(sender, receiver)
        assert counted["drop_SHORT"] > 0
        assert counted["drop_VERSION"] > 0
        assert counted["drop_TOKEN"] > 0


@pytest.mark.usefixtures("driver")
def test_replayed_packets(make_lab: MakeLab, plugin_file: Path, tmp_path: Path) -> None:
    """The job's own packets again: they count as duplicates, or as damaged; none is delivered again."""
    lab = make_lab(LabSpec(hosts=3, offload=Offload.OFF))
    fabric = f"{lab.prefix}fabric"
    with _connected_peers(lab, plugin_file, "thread") as (receiver, sender):
        connect_peers(receiver, sender)
        file = tmp_path / "packets"
        capture = start_attack(fabric, "capture", "h0eni0", str(CAPTURED), str(file))
        while capture.poll() is None:
            transfer_messages(receiver, sender, 8, 100_000)
        assert _wait_for_attack(capture)["captured"] == 2 * CAPTURED
        words = [("replay", str(file), lab.address(victim), lab.address(1 - victim)) for victim in (0, 1)]
        for counts in _attack_meanwhile(lab, words, lambda: transfer_messages(receiver, sender, 8, 200_000)):
            assert counts["sent"] > 0
        transfer_messages(receiver, sender, 8, 200_000)
        counted = _close_peers(sender, receiver)
        assert counted["drop_CRC"] > 0
        assert sum(counted[f"drop_{reason}"] for reason in REASONS) > 10


@pytest.mark.usefixtures("driver")
def test_flood_of_other_tokens(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, driver: str) -> None:
    """Packets that begin otherwise never reach the engine with AF_XDP; they are counted all the same."""
    lab = make_lab(LabSpec(hosts=3, offload=Offload.OFF))
    with _connected_peers(lab, plugin_file, "thread") as (receiver, sender):
        connect_peers(receiver, sender)
        file = tmp_path / "packets"
        capture = start_attack(f"{lab.prefix}fabric", "capture", "h0eni0", "1", str(file))
        while capture.poll() is None:
            transfer_messages(receiver, sender, 8, 10_000)
        assert _wait_for_attack(capture)["captured"] == 2
        attack = start_attack(lab.hosts[ATTACKER], "flood", str(file), lab.address(0), str(FLOOD))
        sent = _wait_for_attack(attack)
        transfer_messages(receiver, sender, 8, 100_000)
        _close_peers(sender)
        counted = _close_peers(receiver)
        if driver == "xdp":
            # A kernel that is behind drops some of them itself.
            assert sent["begin"] / 2 < counted["drop_TOKEN"] <= sent["begin"] + sent["end"]
            assert counted["rx_packets"] < sent["begin"]
        else:
            assert counted["rx_packets"] > counted["drop_TOKEN"] > 0
