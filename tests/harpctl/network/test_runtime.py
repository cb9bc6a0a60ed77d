# SPDX-License-Identifier: Apache-2.0
"""The commands for the running host: what is emitted, its undo, and nothing for what holds already."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harpctl.change.steps import Run, SetControl
from harpctl.errors import HarpError
from harpctl.facts.model import Facts
from harpctl.host.host import Host
from harpctl.network import runtime
from harpctl.network.keyfile import identity
from harpctl.network.plan import plan_network
from tests.harpctl.machine import build
from tests.harpctl.network.example import ETH1, ETH2, ETH3, ScriptedRunner, commands, eni, facts, undos

RULES = "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n"
STALE = f"7700:\tfrom 10.0.1.99 lookup 7700\n7703:\tfrom 10.9.9.9 lookup 7703\n{RULES}"
ALL_RIGHT = {
    "ip -4 rule show": f"7700:\tfrom 10.0.1.11 lookup 7700 proto static\n{RULES}",
    "ip -4 route show table 7700": (
        "default via 10.0.1.1 dev eth1 proto static metric 100 onlink \n"
        "10.0.1.0/24 dev eth1 proto kernel scope link src 10.0.1.11 metric 100 linkdown \n"
    ),
}


def _bare() -> Facts:
    return facts(eni("eth1"), eni("eth2"), eni("eth3.100"))


DONE = {"is_up": True, "mtu": 8500, "queues": 8, "addresses": ["10.0.1.11/24"]}


def _done() -> Facts:
    return facts(eni("eth1", **DONE))


def _host(root: Path, answers: dict[str, str]) -> Host:
    return Host(root, ScriptedRunner(answers))


def test_everything_for_an_eni_that_has_nothing(tmp_path: Path) -> None:
    steps = runtime.commands(_bare(), _host(tmp_path, {}), [ETH1])
    assert commands(steps) == [
        "ethtool -L eth1 combined 8",
        "ip link set dev eth1 mtu 8500",
        "ip link set dev eth1 up",
        "ip -4 addr add 10.0.1.11/24 dev eth1 noprefixroute",
        "ip -4 route add 10.0.1.0/24 dev eth1 scope link table 7700",
        "ip -4 route add default via 10.0.1.1 dev eth1 onlink table 7700",
        "ip -4 rule add pref 7700 from 10.0.1.11 lookup 7700",
    ]
    assert undos(steps) == [
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
    assert commands(runtime.commands(_bare(), _host(tmp_path, {}), [ETH3]))[2:] == [
        "ip -6 addr add fd00:1::13/64 dev eth3.100 noprefixroute nodad",
        "ip -6 route add fd00:1::/64 dev eth3.100 table 7702",
        "ip -6 route add default via fd00:1::1 dev eth3.100 table 7702",
        "ip -6 rule add pref 7702 from fd00:1::13 lookup 7702",
    ]


def test_nothing_for_what_holds(tmp_path: Path) -> None:
    assert runtime.commands(_done(), _host(tmp_path, ALL_RIGHT), [ETH1]) == []


@pytest.mark.parametrize(
    ("fields", "answers", "expected"),
    [
        ({"mtu": 1500}, {}, ["ip link set dev eth1 mtu 8500"]),
        ({"queues": 4}, {}, ["ethtool -L eth1 combined 8"]),
        ({"is_up": False}, {}, ["ip link set dev eth1 up"]),
        ({"addresses": ["10.0.1.11/16"]}, {}, ["ip -4 addr add 10.0.1.11/24 dev eth1 noprefixroute"]),
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
            {"ip -4 route show table 7700": "default via 10.0.1.254 dev eth1 \n10.0.1.0/24 dev eth1 \n"},
            [
                "ip -4 route del default via 10.0.1.254 dev eth1 table 7700",
                "ip -4 route add default via 10.0.1.1 dev eth1 onlink table 7700",
            ],
        ),
    ],
)
def test_only_what_differs(
    tmp_path: Path, fields: dict[str, object], answers: dict[str, str], expected: list[str]
) -> None:
    changed = facts(eni("eth1", **{**DONE, **fields}))
    assert commands(runtime.commands(changed, _host(tmp_path, ALL_RIGHT | answers), [ETH1])) == expected


def test_an_address_that_was_only_given_is_added(tmp_path: Path) -> None:
    line = "3: eth1    inet {}/24 brd 10.0.1.255 scope global eth1\\       valid_lft forever\n"
    for address, count in (("10.0.1.99", 1), ("10.0.1.11", 0)):
        answers = ALL_RIGHT | {"ip -4 -o addr show dev eth1": line.format(address)}
        assert len(runtime.commands(_done(), _host(tmp_path, answers), [ETH1])) == count


def test_rules_of_others_stay(tmp_path: Path) -> None:
    others = (
        "100:\tfrom 10.0.1.11 lookup 7700\n7701:\tfrom 10.0.1.11 lookup 5\n"
        "7702:\tfrom all fwmark 0x1 lookup main\n"
    )
    answers = ALL_RIGHT | {"ip -4 rule show": others + ALL_RIGHT["ip -4 rule show"]}
    assert runtime.commands(_done(), _host(tmp_path, answers), [ETH1]) == []


def test_a_main_route_that_draws_the_primarys_traffic_goes(tmp_path: Path) -> None:
    (eth0, eth1) = _done().enis
    shared = msgspec.structs.replace(
        _done(), enis=(msgspec.structs.replace(eth0, addresses=("10.0.1.10/24",)), eth1)
    )
    route = "10.0.1.0/24 dev eth1 proto kernel scope link src 10.0.1.11"
    main = f"default via 10.0.1.1 dev eth0 \n{route} \n10.0.1.0/24 dev eth0 proto dhcp metric 100 \n"
    steps = runtime.commands(
        shared, _host(tmp_path, ALL_RIGHT | {"ip -4 route show table main": main}), [ETH1]
    )
    assert commands(steps) == ["ip -4 route flush exact 10.0.1.0/24 dev eth1 table main"]
    assert undos(steps) == [f"ip -4 route add {route}"]


def test_a_kernel_that_makes_the_route_nevertheless(tmp_path: Path) -> None:
    primary = eni("eth0", addresses=["10.0.1.10/24"], is_default_route=True, is_up=True)
    for kernel, count in (("3.10.0-1127.el7.x86_64", 1), ("5.4.0", 0)):
        found = msgspec.structs.replace(facts(eni("eth1"), kernel=kernel), enis=(primary, eni("eth1")))
        lines = commands(runtime.commands(found, _host(tmp_path, {}), [ETH1]))
        assert sum("flush" in line for line in lines) == count


def test_channels_that_are_not_reported(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="does not report its channels"):
        runtime.commands(facts(eni("eth1", queues=0)), _host(tmp_path, {}), [ETH1])


def test_an_interface_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="no interface eth1"):
        runtime.commands(facts(), _host(tmp_path, {}), [ETH1])


# ---- the whole group ----


def test_group_of_netplan_is_guarded_and_validated(tmp_path: Path) -> None:
    host = _host(build(tmp_path, "ubuntu-22.04", "gpu2"), {})
    (group,) = plan_network(_bare(), host, [ETH1, ETH2])
    assert group.guarded
    assert isinstance(group.steps[0], Run)
    assert (group.steps[0].argv, group.steps[0].undo) == ((), ("netplan", "generate"))
    assert "netplan generate" in commands(group.steps)
    controls = {step.path: step.value for step in group.steps if isinstance(step, SetControl)}
    assert controls["/proc/sys/net/ipv4/conf/eth2/arp_ignore"] == "1"
    assert len(controls) == 6


def test_group_without_changes_needs_no_guard(tmp_path: Path) -> None:
    (group,) = plan_network(_done(), _host(build(tmp_path, "ubuntu-22.04", "gpu2"), ALL_RIGHT), [ETH1])
    assert not group.guarded


def test_missing_ip_is_named(tmp_path: Path) -> None:
    host = _host(build(tmp_path, "ubuntu-22.04", "gpu2"), {})
    (tmp_path / "usr/sbin/ip").unlink()
    with pytest.raises(HarpError, match="`ip` is missing"):
        plan_network(_bare(), host, [ETH1])


# ---- NetworkManager that runs ----

OLD = "11111111-2222-3333-4444-555555555555"


def _nm(state: str, uuid: str) -> dict[str, str]:
    show = "nmcli -t -f GENERAL.STATE,GENERAL.CON-UUID device show eth1"
    return {
        "nmcli -t -f RUNNING general": "running\n",
        show: f"GENERAL.STATE:{state}\nGENERAL.CON-UUID:{uuid}\n",
    }


def test_networkmanager_takes_its_devices_up_itself(tmp_path: Path) -> None:
    host = _host(build(tmp_path, "rocky-9", "gpu2"), _nm("100 (connected)", OLD))
    (group,) = plan_network(_bare(), host, [ETH1])
    assert group.guarded
    assert commands(group.steps) == [
        "nmcli connection reload",
        "ethtool -L eth1 combined 8",
        f"nmcli --wait 45 connection up uuid {identity(ETH1)} ifname eth1",
    ]
    assert undos(group.steps) == [
        f"nmcli --wait 45 connection up uuid {OLD} ifname eth1",
        "nmcli connection reload",
        "ethtool -L eth1 combined 4",
    ]


def test_a_connection_that_was_not_up_is_not_waited_for(tmp_path: Path) -> None:
    answers = _nm("70 (connecting (getting IP configuration))", OLD)
    (group,) = plan_network(_bare(), _host(build(tmp_path, "rocky-9", "gpu2"), answers), [ETH1])
    assert f"nmcli --wait 0 connection up uuid {OLD} ifname eth1" in undos(group.steps)


@pytest.mark.parametrize("answers", [{}, _nm("10 (unmanaged)", "--")])
def test_without_networkmanager_the_commands_of_ip(tmp_path: Path, answers: dict[str, str]) -> None:
    (group,) = plan_network(_bare(), _host(build(tmp_path, "rocky-9", "gpu2"), answers), [ETH1])
    assert "ip link set dev eth1 up" in commands(group.steps)
    assert not any("connection up" in line for line in commands(group.steps))


def test_networkmanager_below_netplan_is_given_netplans_connection(tmp_path: Path) -> None:
    build(tmp_path, "ubuntu-22.04", "gpu2")
    (tmp_path / "etc/netplan/01-nm.yaml").write_text("network:\n  renderer: NetworkManager\n")
    (group,) = plan_network(_bare(), _host(tmp_path, _nm("30 (disconnected)", "")), [ETH1])
    lines = commands(group.steps)
    assert lines.index("netplan generate") < lines.index("nmcli connection reload")
    assert "nmcli --wait 45 connection up id netplan-eth1 ifname eth1" in lines
