# SPDX-License-Identifier: Apache-2.0
"""Interfaces that the plugin chooses by itself: the cases of tests/unit/test_choice.c."""

from __future__ import annotations

import pytest

from harpctl.facts.model import Eni
from harpctl.facts.unasked import why_left_out


def make_eni(name: str, address: str = "10.0.0.1/24", **own: object) -> Eni:
    values = {"addresses": (address,) if address else (), "is_up": True, "has_link": True, **own}
    return Eni(name=name, **values)  # type: ignore[arg-type]


USUAL = (
    make_eni("docker0", kind="bridge"),
    make_eni("veth1a", kind="veth"),
    make_eni("tap0", kind="tun"),
    make_eni("flannel.1", kind="vxlan"),
)


@pytest.mark.parametrize(
    ("enis", "used"),
    [
        pytest.param((*USUAL, make_eni("eth0"), make_eni("eth5", "fd00::1/64")), "eth0 eth5", id="nics"),
        pytest.param(
            (
                make_eni("eth0", ""),
                make_eni("eth1", is_up=False),
                make_eni("eth2", has_link=False),
                make_eni("usb0", "169.254.3.1/16"),
                make_eni("eth3", "fe80::1/64"),
                make_eni("eth4"),
            ),
            "eth4",
            id="unfit",
        ),
        pytest.param(
            tuple(
                make_eni(name, speed_mbps=mbps)
                for name, mbps in {"eth0": 10_000, "eth1": 100_000, "eth2": 25_000, "eth3": 0}.items()
            ),
            "eth1 eth2 eth3",
            id="management",
        ),
        pytest.param(
            (
                make_eni("eth0"),
                make_eni("eth1", ""),
                make_eni("eth0.7", kind="vlan", lower=("eth0",)),
                make_eni("eth1.7", kind="vlan", lower=("eth1",)),
                make_eni("bond0", kind="bond"),
                make_eni("mac0", kind="macvlan", lower=("eth1",)),
            ),
            "eth0 eth1.7 bond0",
            id="above",
        ),
        pytest.param((make_eni("eth0", kind="veth"),), "eth0", id="container"),
        pytest.param(
            (
                make_eni("eth0", kind="veth"),
                make_eni("net1", kind="macvlan"),
                make_eni("net2", kind="ipvlan"),
            ),
            "net1 net2",
            id="container with macvlan",
        ),
        pytest.param((make_eni("eth0", kind="veth"), make_eni("net1")), "net1", id="container with a NIC"),
        pytest.param((*USUAL[:1], *USUAL[2:]), "", id="none"),
        pytest.param(
            tuple(make_eni(f"eth{n}") for n in range(20)), " ".join(f"eth{n}" for n in range(16)), id="many"
        ),
    ],
)
def test_interfaces_that_are_used(enis: tuple[Eni, ...], used: str) -> None:
    why = why_left_out(enis)
    assert " ".join(name for name, reason in why.items() if not reason) == used
    assert list(why) == [one.name for one in enis]
