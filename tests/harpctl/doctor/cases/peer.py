# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of a peer."""

from __future__ import annotations

from msgspec.structs import replace

from harpctl.doctor.context import DoctorOptions
from harpctl.doctor.path_probe import REFUSED, SILENT, TOO_BIG
from harpctl.doctor.port_sweep import Sweep
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World


def _set_probe(world: World, **changes: object) -> None:
    world.options = DoctorOptions(peers=("10.0.1.99",))
    assert world.machine
    world.machine.reached = replace(world.machine.reached, **changes)


RULE = "nft insert rule inet filter input {} dport {{ 17700, 32768-60999 }} ip saddr {} accept"
NFT = f"{RULE}  # on 10.0.1.99, if it filters"
GROUP = "allow {} 32768-60999 from {} in the security group of 10.0.1.99"


def _commands_to_allow(kind: str, source: str) -> tuple[str, str]:
    return NFT.format(kind, source), GROUP.format(kind, source)


@case(
    "peer.name",
    "fail",
    "no-such-host.invalid has no address",
    "give the addresses of its ENIs: --peer ADDRESS,ADDRESS",
)
def unknown_peer(world: World) -> None:
    world.options = DoctorOptions(peers=("no-such-host.invalid", "10.0.1.99"))


@case(
    "peer.name",
    "fail",
    "No ENI of this host has a conf file and an address of the peer's family",
    "harpctl setup",
)
def peer_of_another_family(world: World) -> None:
    world.options = DoctorOptions(peers=("fd00::9",))


@case("peer.udp", "fail", "eth1 (10.0.1.11) to 10.0.1.99: no answer", *_commands_to_allow("udp", "10.0.1.11"))
def silent_peer(world: World) -> None:
    _set_probe(world, udp=SILENT, full="", ports={}, tcp={})


@case(
    "peer.mtu",
    "fail",
    "of the MTU 9000, it is lost; 1500 bytes pass",
    "harpctl setup --mtu 1500  # on both hosts, or raise it on the way",
)
def black_hole(world: World) -> None:
    _set_probe(world, full=SILENT, passed=1500)


@case(
    "peer.mtu",
    "fail",
    "a router reports that it is too big; 1450 bytes pass",
    "harpctl setup --mtu 1450  # on both hosts, or raise it on the way",
)
def reported_too_big(world: World) -> None:
    _set_probe(world, full=TOO_BIG, passed=1450)


@case(
    "peer.both_ways",
    "warn",
    "Nobody listens on port 17700 of 10.0.1.99",
    "harpctl doctor --serve --port 17700  # on the peer, then again here",
)
def no_responder(world: World) -> None:
    _set_probe(world, udp=REFUSED, full=REFUSED)


@case(
    "peer.ports",
    "fail",
    "UDP does not reach 3 of 28232 ports, 40000-40001, 50000: eth1 (10.0.1.11) to 10.0.1.99, eth2 (10.0.2.12)"
    " to 10.0.1.99.",
    *_commands_to_allow("udp", "10.0.1.11"),
    *_commands_to_allow("udp", "10.0.2.12"),
)
def closed_ports(world: World) -> None:
    _set_probe(world)
    assert world.machine
    world.machine.swept = Sweep(udp=((40000, 40001), (50000, 50000)))


@case("peer.ports", "skip", "Not all ports were tried: 90 s were used up.")
def no_time_for_ports(world: World) -> None:
    _set_probe(world)
    assert world.machine
    world.machine.swept = Sweep(why_not="90 s were used up")


@case(
    "peer.tcp",
    "fail",
    "TCP does not reach 40 of 28232 ports, 40000, 40002, 40004, 40006, 40008, 40010, 40012, 40014 and 32 more"
    " ranges: eth1",
    *_commands_to_allow("tcp", "10.0.1.11"),
    *_commands_to_allow("tcp", "10.0.2.12"),
)
def closed_tcp_ports(world: World) -> None:
    _set_probe(world)
    assert world.machine
    world.machine.swept = Sweep(tcp=tuple((port, port) for port in range(40000, 40080, 2)))


@case("peer.ports", "warn", "UDP port 60999 is silent", *_commands_to_allow("udp", "10.0.1.11"))
def dropped_port(world: World) -> None:
    _set_probe(world, udp=REFUSED, ports={32768: REFUSED, 60999: SILENT})


@case("peer.tcp", "fail", "TCP port 60999: no answer", *_commands_to_allow("tcp", "10.0.1.11"))
def dropped_tcp(world: World) -> None:
    _set_probe(world, udp=REFUSED, tcp={17700: REFUSED, 60999: SILENT})
