# SPDX-License-Identifier: Apache-2.0
"""The commands for the running host: what is emitted, its undo, and nothing for what holds already."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harpctl.change.steps import AnyStep, Group, Run, SetControl
from harpctl.errors import HarpError
from harpctl.facts.model import Facts
from harpctl.facts.sources import collect_sources
from harpctl.host.host import Host
from harpctl.network import runtime
from harpctl.network.model import EniPlan, Interfaces
from harpctl.network.plan import plan_network
from tests.harpctl.machine import build_machine
from tests.harpctl.network.example import (
    ETH1,
    ETH2,
    ETH3,
    ScriptedRunner,
    commands_of,
    make_eni,
    make_facts,
    undos_of,
    write_file,
)

RULES = "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n"
STALE = f"7700:\tfrom 10.0.1.99 lookup 7700\n7703:\tfrom 10.9.9.9 lookup 7703\n{RULES}"
TABLES = "ip -4 route show table all"
ALL_RIGHT = {
    "ip -4 rule show": f"7700:\tfrom 10.0.1.11 lookup 7700 proto static\n{RULES}",
    TABLES: (
        "default via 10.0.1.1 dev eth1 table 7700 proto static metric 100 onlink \n"
        "10.0.1.0/24 dev eth1 table 7700 proto kernel scope link src 10.0.1.11 metric 100 linkdown \n"
    ),
}


def _shown_routes(*routes: str) -> str:
    return "".join(f"{route} table 7700 \n" for route in (*routes, "10.0.1.0/24 dev eth1 table 7701"))


def _facts_of_bare() -> Facts:
    return make_facts(make_eni("eth1"), make_eni("eth2"), make_eni("eth3.100"))


DONE = {"is_up": True, "mtu": 8500, "queues": 8, "addresses": ["10.0.1.11/24"]}


def _facts_when_done() -> Facts:
    return make_facts(make_eni("eth1", **DONE))


def _make_host(root: Path, answers: dict[str, str]) -> Host:
    """Make a host whose eth1 has the settings of ARP."""
    for setting, value in runtime.ARP.items():
        write_file(root, f"/proc/sys/net/ipv4/conf/eth1/{setting}", value)
    return Host(root, ScriptedRunner(answers))


def _plan_state(found: Facts, host: Host, enis: list[EniPlan]) -> list[AnyStep]:
    return runtime.plan_state(found, collect_sources(host, found.enis), enis)


def test_everything_for_an_eni_that_has_nothing(tmp_path: Path) -> None:
    steps = _plan_state(_facts_of_bare(), _make_host(tmp_path, {}), [ETH1])
    assert commands_of(steps) == [
        "ethtool -L eth1 combined 8",
        "ip link set dev eth1 mtu 8500",
        "ip link set dev eth1 up",
        "ip -4 addr replace 10.0.1.11/24 dev eth1 noprefixroute",
        "ip -4 route replace 10.0.1.0/24 dev eth1 scope link table 7700",
        "ip -4 route replace default via 10.0.1.1 dev eth1 onlink table 7700",
        "ip -4 rule add pref 7700 from 10.0.1.11 lookup 7700",
    ]
    assert undos_of(steps) == [
        "ethtool -L eth1 combined 4",
        "ip link set dev eth1 mtu 1500",
        "ip link set dev eth1 down",
        "ip -4 addr del 10.0.1.11/24 dev eth1",
        "ip -4 route del 10.0.1.0/24 dev eth1 scope link table 7700",
        "ip -4 route del default via 10.0.1.1 dev eth1 onlink table 7700",
        "ip -4 rule del pref 7700 from 10.0.1.11 lookup 7700",
    ]
    assert all(isinstance(step, Run) and step.always for step in steps)


def test_ipv6(tmp_path: Path) -> None:
    assert commands_of(_plan_state(_facts_of_bare(), _make_host(tmp_path, {}), [ETH3]))[2:] == [
        "ip -6 addr replace fd00:1::13/64 dev eth3.100 noprefixroute nodad",
        "ip -6 route replace fd00:1::/64 dev eth3.100 table 7702",
        "ip -6 route replace default via fd00:1::1 dev eth3.100 table 7702",
        "ip -6 rule add pref 7702 from fd00:1::13 lookup 7702",
    ]


def test_nothing_for_what_holds(tmp_path: Path) -> None:
    assert _plan_state(_facts_when_done(), _make_host(tmp_path, ALL_RIGHT), [ETH1]) == []


@pytest.mark.parametrize(
    ("fields", "answers", "expected"),
    [
        ({"mtu": 1500}, {}, ["ip link set dev eth1 mtu 8500"]),
        ({"queues": 4}, {}, ["ethtool -L eth1 combined 8"]),
        ({"queues_tx": 8}, {}, []),
        ({"queues": 4, "queues_tx": 4}, {}, ["ethtool -L eth1 rx 8 tx 8"]),
        ({"queues_tx": 2}, {}, ["ethtool -L eth1 rx 8 tx 8"]),
        ({"is_up": False}, {}, ["ip link set dev eth1 up"]),
        ({"addresses": ["10.0.1.11/16"]}, {}, ["ip -4 addr replace 10.0.1.11/24 dev eth1 noprefixroute"]),
        (
            {},
            {"ip -4 rule show": STALE},
            [
                "ip -4 rule del pref 7700 from 10.0.1.99 lookup 7700",
                "ip -4 rule del pref 7703 from 10.9.9.9 lookup 7703",
                "ip -4 rule add pref 7700 from 10.0.1.11 lookup 7700",
            ],
        ),
        (
            {},
            {
                "ip -4 route show table all": _shown_routes(
                    "default via 10.0.1.254 dev eth1", "10.0.1.0/24 dev eth1"
                )
            },
            [
                "ip -4 route del default via 10.0.1.254 dev eth1 table 7700",
                "ip -4 route replace default via 10.0.1.1 dev eth1 onlink table 7700",
            ],
        ),
    ],
)
def test_only_what_differs(
    tmp_path: Path, fields: dict[str, object], answers: dict[str, str], expected: list[str]
) -> None:
    changed = make_facts(make_eni("eth1", **{**DONE, **fields}))
    assert commands_of(_plan_state(changed, _make_host(tmp_path, ALL_RIGHT | answers), [ETH1])) == expected


def test_an_address_that_was_only_given_or_leased_is_set(tmp_path: Path) -> None:
    line = "3: eth1    inet {}/24 brd 10.0.1.255 scope global eth1\\       valid_lft {} preferred_lft {}\n"
    cases = (("10.0.1.99", "forever", 1), ("10.0.1.11", "forever", 0), ("10.0.1.11", "120sec", 1))
    for address, lifetime, count in cases:
        shown = line.format(address, lifetime, lifetime)
        answers = ALL_RIGHT | {"ip -4 -o addr show": shown}
        assert len(_plan_state(_facts_when_done(), _make_host(tmp_path, answers), [ETH1])) == count


def test_rules_of_others_stay(tmp_path: Path) -> None:
    others = (
        "100:\tfrom 10.0.1.11 lookup 7700\n7701:\tfrom 10.0.1.11 lookup 5\n"
        "7702:\tfrom all fwmark 0x1 lookup main\n"
    )
    answers = ALL_RIGHT | {"ip -4 rule show": others + ALL_RIGHT["ip -4 rule show"]}
    assert _plan_state(_facts_when_done(), _make_host(tmp_path, answers), [ETH1]) == []


def test_a_main_route_that_draws_the_primarys_traffic_goes(tmp_path: Path) -> None:
    (eth0, eth1) = _facts_when_done().enis
    shared = msgspec.structs.replace(
        _facts_when_done(), enis=(msgspec.structs.replace(eth0, addresses=("10.0.1.10/24",)), eth1)
    )
    route = "10.0.1.0/24 dev eth1 proto kernel scope link src 10.0.1.11"
    main = f"default via 10.0.1.1 dev eth0 \n{route} \n10.0.1.0/24 dev eth0 proto dhcp metric 100 \n"
    steps = _plan_state(shared, _make_host(tmp_path, {**ALL_RIGHT, TABLES: ALL_RIGHT[TABLES] + main}), [ETH1])
    assert commands_of(steps) == ["ip -4 route flush exact 10.0.1.0/24 dev eth1 table main"]
    assert undos_of(steps) == [f"ip -4 route add {route}"]


def test_a_route_that_a_router_announced_can_be_made_again(tmp_path: Path) -> None:
    """`ip` shows its remaining life as 299sec, and takes 299."""
    primary = make_eni("eth0", addresses=["fd00:1::10/64"], is_default_route=True, is_up=True)
    found = msgspec.structs.replace(make_facts(make_eni("eth3.100")), enis=(primary, make_eni("eth3.100")))
    route = "fd00:1::/64 dev eth3.100 proto ra metric 1024 expires 299{} pref medium"
    answers = {"ip -6 route show table all": route.format("sec") + "\n"}
    steps = _plan_state(found, _make_host(tmp_path, answers), [ETH3])
    assert f"ip -6 route add {route.format('')}" in undos_of(steps)


@pytest.mark.parametrize(
    ("address", "gateway", "shown"),
    [
        (
            "10.0.1.11/32",
            "10.0.1.1",
            "default via 10.0.1.1 dev eth1 table 7700 onlink \n10.0.1.11 dev eth1 table 7700 scope link \n",
        ),
        ("fd00:1::11/128", "", "fd00:1::11 dev eth1 table 7700 metric 1024 pref medium \n"),
        ("fd00:1::11/32", "", "fd00:1::/32 dev eth1 table 7700 metric 1024 pref medium \n"),
    ],
)
def test_a_subnet_of_one_address_as_some_clouds_give(
    tmp_path: Path, address: str, gateway: str, shown: str
) -> None:
    """`ip` shows it without its length."""
    plan = msgspec.structs.replace(ETH1, address=address, gateway=gateway)
    answers = {
        f"ip -{plan.version} rule show": f"7700:\tfrom {plan.host} lookup 7700\n{RULES}",
        f"ip -{plan.version} route show table all": shown,
    }
    found = make_facts(make_eni("eth1", **{**DONE, "addresses": [address]}))
    assert _plan_state(found, _make_host(tmp_path, answers), [plan]) == []


def test_a_kernel_that_makes_the_route_nevertheless(tmp_path: Path) -> None:
    primary = make_eni("eth0", addresses=["10.0.1.10/24"], is_default_route=True, is_up=True)
    for kernel, count in (("3.10.0-1127.el7.x86_64", 1), ("5.4.0", 0)):
        found = msgspec.structs.replace(
            make_facts(make_eni("eth1"), kernel=kernel), enis=(primary, make_eni("eth1"))
        )
        lines = commands_of(_plan_state(found, _make_host(tmp_path, {}), [ETH1]))
        assert sum("flush" in line for line in lines) == count


def test_channels_of_two_kinds_are_set_back_each(tmp_path: Path) -> None:
    found = make_facts(make_eni("eth1", **{**DONE, "queues": 4, "queues_tx": 2}))
    assert undos_of(_plan_state(found, _make_host(tmp_path, ALL_RIGHT), [ETH1])) == ["ethtool -L eth1 rx 4 tx 2"]


def test_channels_that_are_not_reported(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="does not report its channels"):
        _plan_state(make_facts(make_eni("eth1", queues=0)), _make_host(tmp_path, {}), [ETH1])


def test_an_interface_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="no interface eth1"):
        _plan_state(make_facts(), _make_host(tmp_path, {}), [ETH1])


@pytest.mark.parametrize("mac", ["", ETH1.mac.upper(), "52:54:00:00:00:99"])
def test_an_interface_with_the_name_of_another_is_refused(tmp_path: Path, mac: str) -> None:
    found, host = make_facts(make_eni("eth1", **DONE, mac=mac)), _make_host(tmp_path, ALL_RIGHT)
    if not mac.endswith("99"):
        assert _plan_state(found, host, [ETH1]) == []
        return
    with pytest.raises(HarpError, match="eth1 has the MAC address 52:54:00:00:00:99"):
        _plan_state(found, host, [ETH1])


def test_an_interface_of_a_manager_keeps_its_address_and_routes(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(ETH1, address="", gateway="")
    steps = _plan_state(_facts_of_bare(), _make_host(tmp_path, {}), [plan])
    assert commands_of(steps) == ["ethtool -L eth1 combined 8", "ip link set dev eth1 mtu 8500"]


# ---- the whole group ----


def _plan_network(found: Facts, host: Host, wanted: Interfaces) -> list[Group]:
    return plan_network(found, collect_sources(host, found.enis), wanted)


def test_the_group_is_guarded_and_sets_arp(tmp_path: Path) -> None:
    host = _make_host(build_machine(tmp_path, "ubuntu-22.04", "gpu2"), {})
    (group,) = _plan_network(_facts_of_bare(), host, Interfaces(enis=(ETH1, ETH2)))
    assert group.guarded
    controls = {step.path: step.value for step in group.steps if isinstance(step, SetControl)}
    assert controls["/proc/sys/net/ipv4/conf/eth2/arp_ignore"] == "1"
    assert len(controls) == len(runtime.ARP), "eth1 has them"


def test_group_without_changes_needs_no_guard(tmp_path: Path) -> None:
    build_machine(tmp_path, "ubuntu-22.04", "gpu2")
    (group,) = _plan_network(_facts_when_done(), _make_host(tmp_path, ALL_RIGHT), Interfaces(enis=(ETH1,)))
    assert not group.guarded


def test_missing_ip_is_named(tmp_path: Path) -> None:
    host = _make_host(build_machine(tmp_path, "ubuntu-22.04", "gpu2"), {})
    (tmp_path / "usr/sbin/ip").unlink()
    with pytest.raises(HarpError, match="`ip` is missing"):
        _plan_network(_facts_of_bare(), host, Interfaces(enis=(ETH1,)))
