# SPDX-License-Identifier: Apache-2.0
"""Interfaces of trees: kinds, drivers, addresses and routes, and what proc leaves open."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from harpctl.facts.collect import collect_facts
from harpctl.facts.eni import with_link
from harpctl.facts.model import Eni
from harpctl.facts.xdp import best_mode
from harpctl.host.host import Host
from tests.harpctl.machine import build_machine

HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return build_machine(tmp_path, "rocky-9", "gpu2")


def eni_of(tree: Path, name: str) -> Eni:
    eni = collect_facts(Host(tree)).find_eni(name)
    assert eni is not None
    return eni


def test_a_secondary_eni(tree: Path) -> None:
    assert eni_of(tree, "eth2") == Eni(
        name="eth2",
        index=4,
        mac="52:54:00:00:00:12",
        driver="virtio_net",
        addresses=("10.0.2.12/24",),
        is_up=True,
        has_link=True,
        mtu=1500,
        queues=8,
        pci="0000:16:00.0",
        path=("pci0000:10", "0000:10:01.0", "0000:11:00.0", "0000:12:03.0"),
        node=0,
        xdp="native",
    )


def test_what_sysfs_alone_shows_of_a_link_stays() -> None:
    shown = Eni(name="vlan7", driver="8021q", pci="0000:00:05.0", path=("pci0000:00",), node=1, xdp="native")
    shown = replace(shown, lower=("eth0",), speed_mbps=25000, queues=4)
    found = with_link(shown, Eni(name="vlan7", index=7, mtu=9000, kind="vlan", is_up=True))
    assert found == replace(shown, index=7, mtu=9000, kind="vlan", is_up=True)


def test_the_better_default_route_makes_the_primary(tree: Path) -> None:
    enis = collect_facts(Host(tree)).enis
    assert [eni.name for eni in enis if eni.is_default_route] == ["eth0"]
    assert [eni.gateway for eni in enis] == ["10.0.0.1", "10.0.1.1", ""]
    route = tree / "proc/net/route"
    route.write_text(route.read_text().replace("\t101\t", "\t50\t"))
    assert [eni.name for eni in collect_facts(Host(tree)).enis if eni.is_default_route] == ["eth1"]


def test_equal_default_routes_make_all_of_them_primary(tree: Path) -> None:
    route = tree / "proc/net/route"
    route.write_text(route.read_text().replace("\t101\t", "\t100\t"))
    assert [eni.name for eni in collect_facts(Host(tree)).enis if eni.is_default_route] == ["eth0", "eth1"]


def test_an_address_in_a_shared_subnet_belongs_to_none(tree: Path) -> None:
    lines = [
        "eth1\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        "eth2\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
    ]
    (tree / "proc/net/route").write_text(HEAD + "".join(lines))
    facts = collect_facts(Host(tree))
    assert [eni.addresses for eni in facts.enis] == [(), (), ()]
    assert any("10.0.1.11 is unknown" in line and "eth1, eth2 share" in line for line in facts.unknown)


def test_the_longest_subnet_owns_an_address(tree: Path) -> None:
    lines = [
        "eth1\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        "eth2\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
    ]
    (tree / "proc/net/route").write_text(HEAD + "".join(lines))
    assert eni_of(tree, "eth1").addresses == ("10.0.1.11/24",)


def test_ipv6_comes_after_ipv4_and_without_link_local(tree: Path) -> None:
    file = tree / "proc/net/if_inet6"
    file.write_text(file.read_text() + "fd000000000000000000000000000012 04 40 00 80     eth2\n")
    assert eni_of(tree, "eth2").addresses == ("10.0.2.12/24", "fd00::12/64")


def test_an_ipv6_default_route_counts_too(tree: Path) -> None:
    zero = "0" * 32
    hop = "fd000000000000000000000000000001"
    line = f"{zero} 00 {zero} 00 {hop} 00000400 00000001 00000000 00000003     eth2\n"
    (tree / "proc/net/ipv6_route").write_text(line)
    file = tree / "proc/net/if_inet6"
    file.write_text("fd000000000000000000000000000012 04 40 00 80     eth2\n")
    (tree / "proc/net/fib_trie").unlink()
    eni = eni_of(tree, "eth2")
    assert (eni.is_default_route, eni.gateway) == (True, "fd00::1")


def add_virtual(tree: Path, name: str, index: int, **values: str) -> None:
    folder = tree / f"sys/devices/virtual/net/{name}"
    folder.mkdir(parents=True)
    for key, value in {"ifindex": str(index), "iflink": str(index), "type": "1", **values}.items():
        (folder / key).write_text(f"{value}\n")
    (tree / f"sys/class/net/{name}").symlink_to(f"../../devices/virtual/net/{name}")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"uevent": "DEVTYPE=bridge\nINTERFACE=x\n"}, "bridge"),
        ({"uevent": "DEVTYPE=vlan\n"}, "vlan"),
        ({"iflink": "7"}, "veth"),
        ({}, "virtual"),
    ],
)
def test_virtual_interfaces_have_a_kind(tree: Path, values: dict[str, str], kind: str) -> None:
    add_virtual(tree, "x", 20, **values)
    assert eni_of(tree, "x").kind == kind
    assert eni_of(tree, "eth1").kind == ""


def test_what_lies_below_the_default_route_is_marked_too(tree: Path) -> None:
    add_virtual(tree, "br0", 20, uevent="DEVTYPE=bridge\n")
    add_virtual(tree, "br0.5", 21, uevent="DEVTYPE=vlan\n")
    for upper, lower in (("br0", "eth2"), ("br0.5", "br0")):
        (tree / f"sys/class/net/{upper}/lower_{lower}").symlink_to(f"../{lower}")
    (tree / "sys/class/net/eth2/master").symlink_to("../br0")
    (tree / "proc/net/route").write_text(HEAD + "br0.5\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    enis = {eni.name: eni for eni in collect_facts(Host(tree)).enis}
    assert {name for name, eni in enis.items() if eni.is_default_route} == {"br0.5", "br0", "eth2"}
    assert [enis[name].kind for name in ("eth1", "eth2", "br0", "br0.5")] == ["", "port", "bridge", "vlan"]


def test_what_is_not_ethernet_is_left_out(tree: Path) -> None:
    add_virtual(tree, "tun0", 21, type="65534")
    (tree / "sys/class/net/bonding_masters").write_text("\n")
    assert [eni.name for eni in collect_facts(Host(tree)).enis] == ["eth0", "eth1", "eth2"]


def test_an_ena_has_a_speed_and_no_virtio(tmp_path: Path) -> None:
    eni = eni_of(build_machine(tmp_path, "rocky-9", "ena"), "eth1")
    assert (eni.driver, eni.speed_mbps, eni.pci) == ("ena", 25000, "0000:15:00.0")


@pytest.mark.parametrize(
    ("driver", "kernel", "mode"),
    [
        ("mlx5_core", "5.4.0-216-generic", "zero-copy"),
        ("mlx5_core", "4.19.1", "native"),
        ("mlx5_core", "3.10.0-1160.el7.x86_64", ""),
        ("ice", "5.15.0", "zero-copy"),
        ("ena", "6.8.0", "native"),
        ("virtio_net", "6.18.0", "native"),
        ("e1000", "6.8.0", "generic"),
        ("", "6.8.0", ""),
        ("ena", "", ""),
    ],
)
def test_xdp_by_driver_and_kernel(tree: Path, driver: str, kernel: str, mode: str) -> None:
    assert best_mode(Host(tree), "eth1", driver, kernel) == mode


def test_virtio_has_zero_copy_only_with_the_platforms_addresses(tree: Path) -> None:
    features = tree / "sys/class/net/eth1/device/features"
    for bit, mode in ((33, "zero-copy"), (32, "native")):
        features.write_text("0" * bit + "1" + "0" * (63 - bit) + "\n")
        assert best_mode(Host(tree), "eth1", "virtio_net", "6.13.2") == mode
    assert best_mode(Host(tree), "eth1", "virtio_net", "6.12.1") == "native"


@pytest.mark.parametrize(
    ("version", "mode"), [("2.13.0g", "zero-copy"), ("2.9.1g", "native"), ("2.17.0K", "native")]
)
def test_amazons_own_driver_has_zero_copy_since_2_13(tree: Path, version: str, mode: str) -> None:
    module = tree / "sys/module/ena"
    module.mkdir(parents=True)
    (module / "version").write_text(f"{version}\n")
    assert best_mode(Host(tree), "eth1", "ena", "6.8.0") == mode
