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
from tests.harplab.lab.blast import blast
from tests.lab.job import until

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]


def reaches(lab: Lab, source: tuple[int, int], target: tuple[int, int]) -> bool:
    """Whether an echo from one ENI's address to another's comes back."""
    words = ("ping", "-c", "1", "-W", "1", "-I", lab.address(*source), lab.address(*target))
    try:
        run_command(Command(tuple(lab.command(source[0], words))))
    except HarpError:
        return False
    return True


def link(lab: Lab, host: int, name: str) -> dict[str, object]:
    shown = run_command(ip_inside(lab.hosts[host], "-json", "link", "show", "dev", name))
    found: dict[str, object] = json.loads(shown)[0]
    return found


@pytest.fixture(params=[Subnets.ROUTED, Subnets.ONE])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab(LabSpec(enis=3, host_enis=(2, 3), subnets=request.param)) as lab:
        yield lab


def arrived(lab: Lab, host: int, eni: int) -> int:
    words = ("-json", "-statistics", "link", "show", "dev", f"eni{eni}")
    shown = run_command(ip_inside(lab.hosts[host], *words))
    return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])


def test_every_eni_reaches_every_other_by_itself(lab: Lab) -> None:
    for own in range(2):
        for other in range(3):
            before = arrived(lab, 1, other), arrived(lab, 0, own)
            assert reaches(lab, (0, own), (1, other)), (own, other)
            until("the packet went by that ENI", lambda o=other, b=before[0]: arrived(lab, 1, o) > b)  # type: ignore[misc]
            until("the answer went by that ENI", lambda o=own, b=before[1]: arrived(lab, 0, o) > b)  # type: ignore[misc]
    lab.unplug(1, 1)  # nobody else answers for it
    assert not reaches(lab, (0, 0), (1, 1))
    assert reaches(lab, (0, 0), (1, 2))


def test_routes_outlive_a_flap_and_a_lost_address(lab: Lab) -> None:
    lab.link_down(0, 1)
    assert not reaches(lab, (0, 1), (1, 2))
    lab.link_up(0, 1)
    until("it is reached again", lambda: reaches(lab, (0, 1), (1, 2)))
    lab.remove_address(0, 1)
    assert not reaches(lab, (1, 2), (0, 1))
    lab.add_address(0, 1)
    until("it is reached again", lambda: reaches(lab, (1, 2), (0, 1)))


def test_all_that_was_changed_is_restored(lab: Lab) -> None:
    lab.unplug(0, 1)
    lab.remove_address(0, 1)
    lab.set_mtu(0, 1, 1400)
    lab.link_down(0, 1)
    lab.cap(0, 1, 10)
    lab.faults(0, 1).blackhole()
    for _ in range(2):
        lab.restore(0, 1)
    until("it is reached again", lambda: reaches(lab, (1, 2), (0, 1)))
    assert link(lab, 0, "eni1")["mtu"] == 1500
    assert link(lab, 0, "eni1")["qdisc"] == "noqueue"


def test_a_pulled_cable_takes_the_carrier(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(switch=True))
    lab.unplug(0)
    flags = link(lab, 0, "eni0")["flags"]
    assert isinstance(flags, list)
    assert "NO-CARRIER" in flags
    lab.plug(0)
    until("it is up", lambda: link(lab, 0, "eni0")["operstate"] == "UP")
    until("it is reached again", lambda: reaches(lab, (0, 0), (1, 0)))


def test_many_flaps(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(switch=True))
    lab.faults(1).delay_ms(0.1)
    for _ in range(20):
        lab.link_down(0)
        lab.link_up(0)
        lab.unplug(1)
        lab.plug(1)
    until("it is reached again", lambda: reaches(lab, (0, 0), (1, 0)))
    assert len(blast(lab, 100).numbers) == 100


def test_what_is_not_there(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec())
    with pytest.raises(HarpError, match=r"no host 2.\n  Its hosts are 0 to 1"):
        lab.link_down(2)
    with pytest.raises(HarpError, match="Host 1 has no ENI 1"):
        lab.faults(1, 1)
    with pytest.raises(HarpError, match="only where a switch"):
        lab.unplug(0)
