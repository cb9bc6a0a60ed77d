# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of the ENIs."""

from __future__ import annotations

from msgspec.structs import replace

from harpctl.facts.model import Gpu
from harpctl.facts.sources import RECORD
from harpctl.network.model import Interfaces, encode_record
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import RULES, STATE, World


@case("enis.count", "warn", "2 ENIs for 3 GPUs", "bind 1 more ENIs to this instance, then harpctl setup")
def few_enis(world: World) -> None:
    gpu = Gpu(index=2, pci="0000:20:00.0", vendor="10de", device="20b0", node=1)
    world.facts = replace(world.facts, gpus=(*world.facts.gpus, gpu))


@case("enis.count", "warn", "2 ENIs for 1 GPUs", "harpctl setup --enis eth1")
def few_gpus(world: World) -> None:
    world.facts = replace(world.facts, gpus=world.facts.gpus[:1])


@case(
    "enis.default_route",
    "warn",
    "eth1 carries the default route",
    "harpctl setup --enis NAME,...  # with secondary ENIs",
)
def primary_eni(world: World) -> None:
    world.change_eni("eth1", is_default_route=True)


@case("enis.device", "warn", "eth1 is a veth", "harpctl setup --enis NAME,...  # with secondary ENIs")
def software_eni(world: World) -> None:
    world.change_eni("eth1", kind="veth")


@case("enis.up", "fail", "eth1 is down", "ip link set dev eth1 up", is_safe=True)
def eni_down(world: World) -> None:
    world.change_eni("eth1", is_up=False, has_link=False)


@case("enis.link", "fail", "eth1 is up and has no link", "ethtool eth1", "dmesg | grep eth1")
def no_link(world: World) -> None:
    world.change_eni("eth1", has_link=False)


@case(
    "enis.address",
    "fail",
    "eth1 has no address",
    "harpctl setup --address eth1=10.0.1.11/24 --enis eth1,eth2  # with its subnet's length",
)
def no_address(world: World) -> None:
    world.change_eni("eth1", addresses=("fe80::1/64",))


@case("enis.address_once", "fail", "10.0.1.11 is on eth1 and on eth2", "ip addr del 10.0.1.11/24 dev eth2")
def address_twice(world: World) -> None:
    world.change_eni("eth2", addresses=("10.0.2.12/24", "10.0.1.11/24"))


@case("enis.mtu_equal", "warn", "eth1 has 9000, eth2 has 9500", "harpctl setup --mtu 9500")
def mtus_differ(world: World) -> None:
    world.change_eni("eth2", mtu=9500)


@case("enis.mtu_least", "warn", "eth1 has MTU 1400", "harpctl setup --mtu 1500")
def small_mtu(world: World) -> None:
    world.conf(1, mtu=1400)


@case("enis.mtu_least", "fail", "eth1 has MTU 1200, and HARP needs 1280", "harpctl setup --mtu 1500")
def refused_mtu(world: World) -> None:
    world.conf(1, mtu=None)
    world.change_eni("eth1", mtu=1200)


@case("enis.egress", "fail", "from 10.0.1.11 to 10.0.2.1 the kernel sends through eth2", "harpctl setup")
def wrong_way_out(world: World) -> None:
    assert world.machine
    world.machine.ways[("10.0.1.11", "10.0.2.1")] = "eth2"


@case("enis.egress", "fail", "the kernel has no way from 10.0.1.11 to 10.0.1.1", "harpctl setup")
def no_way_out(world: World) -> None:
    assert world.machine
    world.machine.ways[("10.0.1.11", "10.0.1.1")] = ""


def _one_subnet(world: World) -> None:
    world.change_eni("eth2", addresses=("10.0.1.12/24",), gateway="10.0.1.1")
    world.conf(2, address="10.0.1.12", gateway="10.0.1.1")


@case(
    "enis.arp",
    "fail",
    "eth1 shares its subnet with another interface, and its arp_ignore is 0",
    "sysctl -w net/ipv4/conf/eth1/arp_ignore=1",
    is_safe=True,
)
def arp_flux(world: World) -> None:
    _one_subnet(world)
    for name in ("all", "eth1"):
        world.write(f"/proc/sys/net/ipv4/conf/{name}/arp_ignore", "0\n")


@case(
    "enis.rp_filter",
    "fail",
    "eth2 shares its subnet with another interface, and its rp_filter is 1",
    "sysctl -w net/ipv4/conf/eth2/rp_filter=2",
    is_safe=True,
)
def strict_filter(world: World) -> None:
    _one_subnet(world)
    for name in ("all", "eth2"):
        world.write(f"/proc/sys/net/ipv4/conf/{name}/rp_filter", "1\n")


@case(
    "enis.big_tcp",
    "warn",
    "TCP uses packets of 64 KiB on eth1; with 128 KiB (BIG TCP) it takes less CPU.",
    "harpctl setup --big-tcp",
)
def packets_of_64_kib(world: World) -> None:
    world.change_eni("eth1", gro_ipv4_max_size=65536)


@case("enis.big_tcp", "skip", "No BIG TCP for eth1: it is for AF_XDP.")
def big_tcp_beside_af_xdp(world: World) -> None:
    world.change_eni("eth1", gro_ipv4_max_size=65536)
    world.conf(1, driver="xdp")


@case("enis.big_tcp", "skip", "It was set up with --no-big-tcp.")
def big_tcp_left_out(world: World) -> None:
    world.change_eni("eth1", gro_ipv4_max_size=65536)
    world.write(RECORD, encode_record(Interfaces(big_tcp=False)).decode())


# ---- the record of setup ----


@case(
    "enis.state",
    "fail",
    "eth2 is not as setup recorded it; it lacks: rule 7701 for 10.0.2.12",
    "harpctl boot",
)
def rule_lost(world: World) -> None:
    world.runner.answers["ip -4 rule show"] = RULES.splitlines()[0]


@case("enis.state", "fail", "eth1 is not as setup recorded it; it lacks: routes of", "harpctl boot")
def table_lost(world: World) -> None:
    world.runner.answers["ip -4 route show table all"] = "\n".join(
        line for line in STATE["ip -4 route show table all"].splitlines() if "eth1" not in line
    )


@case("enis.state", "fail", "eth2 is not as setup recorded it; it lacks: MTU 9000", "harpctl boot")
def mtu_lost(world: World) -> None:
    world.change_eni("eth2", mtu=8500)
    for number in (1, 2):
        world.conf(number, mtu=8500)


@case("enis.state", "fail", "There are routing rules of earlier setups", "harpctl boot")
def stale_rule(world: World) -> None:
    world.runner.answers["ip -4 rule show"] = f"{RULES}7703:\tfrom 10.9.9.9 lookup 7703\n"


@case(
    "enis.state",
    "fail",
    "eth1 has the MAC address 52:54:00:00:00:09, not 52:54:00:00:00:01",
    "harpctl setup",
)
def names_moved(world: World) -> None:
    world.change_eni("eth1", mac="52:54:00:00:00:09")
    world.conf(1, mac="52:54:00:00:00:09")


@case("enis.state", "skip", "There is no record of the ENIs")
def no_record(world: World) -> None:
    world.remove(RECORD)


# ---- HARP_IFNAME ----


@case(
    "enis.egress",
    "fail",
    "eth2: from 10.0.2.12 to 10.0.2.1 the kernel sends through eth1",
    "harpctl setup",
)
def wrong_way_of_a_selected_interface(world: World) -> None:
    world.environment["HARP_IFNAME"] = "=eth1,eth2"
    world.confs.clear()
    assert world.machine
    world.machine.ways[("10.0.2.12", "10.0.2.1")] = "eth1"
