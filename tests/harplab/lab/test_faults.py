# SPDX-License-Identifier: Apache-2.0
"""Each fault does to packets what its name means, to the amount requested, and nothing once it is cleared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harpctl.errors import ExitCode, HarpError
from harplab.lab.commands import Command
from harplab.lab.lab import RUN_DIR, Lab, namespaces_there, run_command
from harplab.lab.spec import LabSpec
from tests.harplab.lab.blast import blast_flows

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
COUNT = 2000
TRIES = 10


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    with Lab(LabSpec(switch=True)) as lab:
        yield lab


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    """Provide a lab for whose faults each test cleans up."""
    blast_flows(shared, 1)  # so that ARP is done
    yield shared
    for host in range(2):
        shared.restore(host, 0)


def test_nothing_is_changed_without_faults(lab: Lab) -> None:
    for box_is_in in (False, True):
        if box_is_in:
            lab.faults(1).set("out", delay_ms=1)
        arrived = blast_flows(lab, COUNT)
        assert list(arrived.numbers) == list(range(COUNT))
        assert arrived.wrong == 0


@pytest.mark.parametrize("switch", [True, False])
def test_drop(make_lab: MakeLab, switch: bool) -> None:
    lab = make_lab(LabSpec(switch=switch))
    faults = lab.faults(1).drop(0.1, "in")
    arrived = blast_flows(lab, COUNT)
    lost = COUNT - len(arrived.numbers)
    assert 133 <= lost <= 267  # 200 expected; 5 standard deviations either way
    assert faults.counts()["in"]["dropped"] == lost
    assert len(blast_flows(lab, 200, source=(1, 0), target=(0, 0)).numbers) == 200
    faults.clear()
    assert len(blast_flows(lab, COUNT).numbers) == COUNT
    assert faults.total("dropped") == 0


@pytest.mark.parametrize("switch", [True, False])
@pytest.mark.parametrize("way", ["in", "out"])
def test_a_blackhole_is_one_way(make_lab: MakeLab, switch: bool, way: str) -> None:
    lab = make_lab(LabSpec(switch=switch))
    blast_flows(lab, 1)
    lab.faults(1).blackhole(way)
    arrive = {
        "in": len(blast_flows(lab, 20).numbers),
        "out": len(blast_flows(lab, 20, source=(1, 0), target=(0, 0)).numbers),
    }
    assert arrive == {"in": 20, "out": 20, way: 0}
    lab.faults(1).blackhole(way, on=False)
    assert len(blast_flows(lab, 20, source=(1, 0), target=(0, 0)).numbers) == 20
    assert len(blast_flows(lab, 20).numbers) == 20


def test_bursts(lab: Lab) -> None:
    faults = lab.faults(1).burst(0.1, packets=8, direction="in")
    arrived = blast_flows(lab, 10_000)
    gaps = arrived.gaps(10_000)
    lost = sum(gaps)
    assert faults.total("lost") == lost
    assert 0.04 <= lost / 10_000 <= 0.18  # some 125 bursts
    assert 5.5 <= statistics.mean(gaps) <= 11.5


def test_corruption_passes_the_checksum(lab: Lab) -> None:
    faults = lab.faults(0).corrupt(0.05, "out")
    arrived = blast_flows(lab, COUNT)
    assert len(arrived.numbers) == COUNT
    assert faults.counts()["in"]["corrupted"] == 0
    corrupted = faults.counts()["out"]["corrupted"]
    assert 55 <= corrupted <= 150
    # A bit of a datagram's own number may make another small number; its time stamp isn't looked at.
    assert corrupted * 0.7 <= arrived.wrong <= corrupted


def test_duplicates(lab: Lab) -> None:
    faults = lab.faults(1).duplicate(0.1, "in")
    arrived = blast_flows(lab, COUNT)
    assert set(arrived.numbers) == set(range(COUNT))
    assert 133 <= arrived.twice <= 267
    assert faults.total("doubled") == arrived.twice


def test_reordering(lab: Lab) -> None:
    lab.faults(1).reorder(0.05, by_ms=2, direction="in")
    arrived = blast_flows(lab, COUNT, gap_us=20)
    assert sorted(arrived.numbers) == list(range(COUNT))
    assert 50 <= arrived.overtaken <= 150


def _quickest_ms(lab: Lab, limit_ms: float, **words: Any) -> float:
    """Return the shortest time of a datagram; try again where it is over the limit, as on a busy machine."""
    for _ in range(TRIES):
        quickest = min(blast_flows(lab, 50, **words).took_ms)
        if quickest < limit_ms:
            break
    return quickest


def test_delay_is_one_way_and_keeps_the_order(lab: Lab) -> None:
    lab.faults(1).delay_ms(50, "in")
    arrived = blast_flows(lab, 500)
    assert list(arrived.numbers) == list(range(500))
    assert min(arrived.took_ms) >= 50
    assert 50 <= _quickest_ms(lab, 100) < 100
    assert _quickest_ms(lab, 50, source=(1, 0), target=(0, 0)) < 50
    lab.faults(1).delay_ms(0)
    assert _quickest_ms(lab, 50) < 50


def test_a_smaller_mtu_in_the_network_swallows_long_packets(lab: Lab) -> None:
    lab.faults(1).shrink_mtu(1000, "in")
    assert len(blast_flows(lab, 20, size=1000 - 28).numbers) == 20
    assert len(blast_flows(lab, 20, size=1001 - 28).numbers) == 0
    assert lab.faults(1).total("too_long") == 20


def test_a_superframe_is_one_packet_and_its_segments_are_measured(lab: Lab) -> None:
    send = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.setsockopt(socket.IPPROTO_UDP, 103, 1000); s.sendto(bytes(60000), (sys.argv[1], 9))"
    )
    superframe = Command(tuple(lab.command(0, ["python3", "-c", send, lab.address(1)])))
    faults = lab.faults(1).shrink_mtu(1028, "in")
    forwarded = faults.counts()["in"]["forwarded"]
    run_command(superframe)
    assert faults.counts()["in"]["forwarded"] - forwarded < 20
    assert faults.total("too_long") == 0
    faults.shrink_mtu(1027, "in")
    run_command(superframe)
    assert faults.total("too_long") == 1


def test_kinds_add_up_and_go_one_by_one(lab: Lab) -> None:
    faults = lab.faults(1).duplicate(1.0, "in").drop(0.5, "in")
    assert blast_flows(lab, 400).twice > 50
    faults.duplicate(0, "in")
    arrived = blast_flows(lab, 400)
    assert arrived.twice == 0
    assert 120 <= len(arrived.numbers) <= 280
    assert faults.state()["in"].drop == 0.5
    faults.clear()
    assert faults.state()["in"].drop == 0


def test_another_process_sees_and_changes_the_faults(lab: Lab) -> None:
    lab.faults(1).delay_ms(1, "in")
    other = Lab(lab.spec, prefix=lab.prefix)
    assert other.faults(1).state()["in"].delay_ms == 1
    other.faults(1).duplicate(1.0, "in")
    assert blast_flows(lab, 100).twice == 100
    other.faults(1).clear()
    assert blast_flows(lab, 100).twice == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("drop", 1.5, "drop is a share of packets from 0 to 1, not 1.5"),
        ("burst", 1.0, "burst is a share"),
        ("delay_ms", -1, "delay_ms is 0 to 10000 ms"),
        ("burst_packets", 0.5, "at least 1 packet"),
        ("path_mtu_bytes", 100, "at least 576 bytes"),
    ],
)
def test_values_out_of_range(lab: Lab, name: str, value: float, message: str) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(HarpError, match=message) as caught:
        lab.faults(0).set(**changes)
    assert caught.value.exit_code is ExitCode.USAGE
    with pytest.raises(HarpError, match="`in`, `out` or `both`"):
        lab.faults(0).drop(0.1, "sideways")


def test_only_a_switch_lets_packets_be_changed(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec())
    with pytest.raises(HarpError, match="Without a switch"):
        lab.faults(0).delay_ms(1)
    assert lab.faults(0).state()["in"].delay_ms == 0


def test_a_lab_with_faults_leaves_nothing() -> None:
    with Lab(LabSpec(switch=True)) as lab:
        lab.faults(0).delay_ms(1)
        lab.faults(1).drop(0.1)
        pids = run_command(Command(("ip", "netns", "pids", f"{lab.prefix}fabric"))).split()
        assert len(pids) == 1
        prefix = lab.prefix
    assert not [name for name in namespaces_there() if name.startswith(prefix)]
    assert not (RUN_DIR / prefix.rstrip("-")).exists()
