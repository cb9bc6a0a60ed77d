# SPDX-License-Identifier: Apache-2.0
"""BIG TCP is planned where it helps and harms nobody; what is larger, or was made smaller, stays."""

from __future__ import annotations

import pytest

from harpctl.change.steps import SetSizes
from harpctl.host.link_sizes import SETTABLE, Sizes
from harpctl.network.big_tcp import BYTES, plan_big_tcp, sizes_to_raise
from tests.harpctl.links import FRESH
from tests.harpctl.network.example import make_eni

ALL = dict.fromkeys(SETTABLE, BYTES)
GRO = {"gro_max_size": BYTES, "gro_ipv4_max_size": BYTES}


@pytest.mark.parametrize(
    ("have", "raised"),
    [
        (FRESH, ALL),
        ({**FRESH, "tso_max_size": 65536}, GRO),  # most NICs
        ({**FRESH, "tso_max_size": 100000}, {**GRO, "gso_max_size": 100000, "gso_ipv4_max_size": 100000}),
        (
            {**FRESH, "gso_max_size": 200000, "gro_max_size": BYTES},
            {key: ALL[key] for key in ALL if "ipv4" in key},
        ),
        ({**FRESH, "gso_max_size": 40000, "gso_ipv4_max_size": 40000}, GRO),  # somebody lowered it
        (dict.fromkeys(FRESH, 524280), {}),
        # Linux 6.1, 5.17 and 4.18
        (
            {"gso_max_size": 65536, "gro_max_size": 65536, "tso_max_size": 524280},
            {"gso_max_size": BYTES, "gro_max_size": BYTES},
        ),
        ({"gso_max_size": 65536, "gro_max_size": 65536}, {}),
        ({"gso_max_size": 65536}, {}),
        ({}, {}),
    ],
)
def test_sizes(have: Sizes, raised: Sizes) -> None:
    assert sizes_to_raise(make_eni("eth1", **have)) == raised


@pytest.mark.parametrize(
    ("driver", "fields", "reason"),
    [
        ("auto", {}, ""),
        ("tcp", {"kind": "veth", "xdp": "native"}, ""),
        ("auto", {"xdp": "native"}, ""),
        ("udp", {"xdp": "zero-copy"}, ""),
        ("auto", {"xdp": "zero-copy"}, "is for AF_XDP"),
        ("xdp-copy", {}, "is for AF_XDP"),
        ("tcp", {"xdp_attached": True}, "has an XDP program"),
        ("tcp", {"kind": "veth", "is_port": True}, "is a port of a bridge, a bond or Open vSwitch"),
        ("tcp", {"kind": "vlan"}, "is a vlan, which lies on another interface"),
    ],
)
def test_who_is_left_alone(driver: str, fields: dict[str, object], reason: str) -> None:
    group, notes = plan_big_tcp([(make_eni("eth1", **FRESH, **fields), driver)])
    assert notes == ([f"No BIG TCP for eth1: it {reason}."] if reason else [])
    assert [step.sizes for step in group.steps if isinstance(step, SetSizes)] == ([] if reason else [ALL])


def test_what_is_forwarded_is_not_made_larger() -> None:
    router = make_eni("eth1", **FRESH, forwards=True)
    nic = make_eni("eth2", **{**FRESH, "tso_max_size": 65536}, forwards=True)
    group, notes = plan_big_tcp([(router, "tcp"), (nic, "tcp")])
    (step,) = group.steps
    assert isinstance(step, SetSizes)
    assert (step.interface, step.sizes) == ("eth1", {"gso_max_size": BYTES, "gso_ipv4_max_size": BYTES})
    why = "receives: the host forwards packets from it."
    assert notes == [f"No BIG TCP for what {name} {why}" for name in ("eth1", "eth2")]


def test_who_has_nothing_to_raise_is_not_mentioned() -> None:
    group, notes = plan_big_tcp([(make_eni("eth1", is_port=True), "xdp")])
    assert (group.steps, notes) == ((), [])
