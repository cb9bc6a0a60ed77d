# SPDX-License-Identifier: Apache-2.0
"""Links, addresses and routes of a lab, changed while it stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from harpctl.errors import HarpError
from harplab.lab.commands import Command, ip_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets
from tests.harplab.lab.blast import blast_flows
from tests.lab.job import poll_until

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]


def is_reached(lab: Lab, source: tuple[int, int], target: tuple[int, int]) -> bool:
    """Return whether an echo from one ENI's address to another's comes back."""
    words = ("ping", "-c", "1", "-W", "1", "-I", lab.address(*source), lab.address(*target))
    try:
        run_command(Command(tuple(lab.command(source[0], words))))
    except HarpError:
        return False
    return True


def read_link(lab: Lab, host: int, name: str) -> dict[str, object]:
    shown = run_command(ip_inside(lab.hosts[host], "-json", "link", "show", "dev", name))
    found: dict[str, object] = json.loads(shown)[0]
    return found


@pytest.fixture(params=[Subnets.ROUTED, Subnets.ONE])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab(LabSpec(enis=3, host_enis=(2, 3), subnets=request.param)) as lab:
        yield lab


def arrived_packets(lab: Lab, host: int, eni: int) -> int:
    words = ("-json", "-statistics", "link", "show", "dev", f"eni{eni}")
    shown = run_command(ip_inside(lab.hosts[host], *words))
    return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])


def wait_for_packet(lab: Lab, host: int, eni: int, before: int) -> None:
    poll_until(f"a packet came by host {host}'s ENI {eni}", lambda: arrived_packets(lab, host, eni) > before)


def test_every_eni_reaches_every_other_by_itself(lab: Lab) -> None:
    for own in range(2):
        for other in range(3):
            there, back = arrived_packets(lab, 1, other), arrived_packets(lab, 0, own)
            assert is_reached(lab, (0, own), (1, other)), (own, other)
            wait_for_packet(lab, 1, other, there)
            wait_for_packet(lab, 0, own, back)
    lab.unplug(1, 1)  # nobody else answers for it
    assert not is_reached(lab, (0, 0), (1, 1))
    assert is_reached(lab, (0, 0), (1, 2))


def test_routes_outlive_a_flap_and_a_lost_address(lab: Lab) -> None:
    lab.link_down(0, 1)
    assert not is_reached(lab, (0, 1), (1, 2))
    lab.link_up(0, 1)
    poll_until("it is reached again", lambda: is_reached(lab, (0, 1), (1, 2)))
    lab.remove_address(0, 1)
    assert not is_reached(lab, (1, 2), (0, 1))
    lab.add_address(0, 1)
    poll_until("it is reached again", lambda: is_reached(lab, (1, 2), (0, 1)))


def test_all_that_was_changed_is_restored(lab: Lab) -> None:
    lab.unplug(0, 1)
    lab.remove_address(0, 1)
    lab.set_mtu(0, 1, 1400)
    lab.link_down(0, 1)
    lab.cap(0, 1, 10)
    lab.faults(0, 1).blackhole()
    for _ in range(2):
        lab.restore(0, 1)
    poll_until("it is reached again", lambda: is_reached(lab, (1, 2), (0, 1)))
    assert read_link(lab, 0, "eni1")["mtu"] == 1500
    assert read_link(lab, 0, "eni1")["qdisc"] == "noqueue"


def test_a_pulled_cable_takes_the_carrier(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(switch=True))
    lab.unplug(0)
    flags = read_link(lab, 0, "eni0")["flags"]
    assert isinstance(flags, list)
    assert "NO-CARRIER" in flags
    lab.plug(0)
    poll_until("it is up", lambda: read_link(lab, 0, "eni0")["operstate"] == "UP")
    poll_until("it is reached again", lambda: is_reached(lab, (0, 0), (1, 0)))


def test_many_flaps(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(switch=True))
    lab.faults(1).delay_ms(0.1)
    for _ in range(20):
        lab.link_down(0)
        lab.link_up(0)
        lab.unplug(1)
        lab.plug(1)
    poll_until("it is reached again", lambda: is_reached(lab, (0, 0), (1, 0)))
    assert len(blast_flows(lab, 100).numbers) == 100


def test_what_is_not_there(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec())
    with pytest.raises(HarpError, match=r"no host 2.\n  Its hosts are 0 to 1"):
        lab.link_down(2)
    with pytest.raises(HarpError, match="Host 1 has no ENI 1"):
        lab.faults(1, 1)
    with pytest.raises(HarpError, match="only where a switch"):
        lab.unplug(0)
