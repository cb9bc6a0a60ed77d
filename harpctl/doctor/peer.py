# SPDX-License-Identifier: Apache-2.0
"""Checks of the way to a given peer: it answers over each ENI, at the whole MTU, on the ports of HARP."""

from __future__ import annotations

from collections.abc import Iterator

from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import Said, check, fail, warn
from harpctl.doctor.reach import ANSWERED, ECHO, REFUSED, SILENT, TOO_BIG
from harpctl.doctor.ways import Way, ephemeral_ports


@check("peer.name", "The peer has addresses that an ENI can send to", needs.live)
def check_name(context: Context) -> Iterator[Said]:
    """Resolve the peer's names."""
    for peer in context.options.peers:
        if said := context.machine.resolve(peer)[1]:
            yield fail(
                f"{peer} has no address: {said}.", "give the addresses of its ENIs: --peer ADDRESS,ADDRESS"
            )
    if not context.ways:
        yield fail(
            "No ENI of this host has a conf file and an address of the peer's family, so nothing was sent.",
            "harpctl setup",
        )


@check("peer.udp", "The peer answers UDP over each ENI", needs.live)
def check_udp(context: Context) -> Iterator[Said]:
    """Look at the smallest datagrams."""
    for way in context.ways:
        if way.reach.udp not in ANSWERED:
            yield fail(f"{way.name}: {_words(way.reach.udp)}.", *_allow(way, context, "udp"))


@check("peer.mtu", "Packets of the whole MTU reach the peer", needs.live)
def check_mtu(context: Context) -> Iterator[Said]:
    """Look at the packets that fill the MTU, which may not be fragmented."""
    for way in context.ways:
        if not way.reach.full or way.reach.full in ANSWERED:
            continue
        how = "a router says it is too big" if way.reach.full == TOO_BIG else "it vanishes"
        yield fail(
            f"{way.name}: of the MTU {way.mtu}, {how}; {way.reach.passed} bytes pass.",
            f"ip link set dev {way.eni} mtu {way.reach.passed}  # on both hosts, or raise it between them",
        )


@check("peer.both_ways", "The peer's responder proves both directions", needs.live, validates=False)
def check_both_ways(context: Context) -> Iterator[Said]:
    """Look for ways where the peer only refused: its kernel answers, but with less than it got."""
    refused = [way for way in context.ways if REFUSED in {way.reach.udp, way.reach.full}]
    if refused:
        targets = ", ".join(dict.fromkeys(way.target for way in refused))
        yield warn(
            f"Nobody listens on port {context.options.port} of {targets}: the way there is proven, the way"
            " back at full MTU is not.",
            f"harpctl doctor --serve --port {context.options.port}  # on the peer, then again here",
        )


@check("peer.ports", "No firewall drops UDP to the ports that HARP uses", needs.live, validates=False)
def check_ports(context: Context) -> Iterator[Said]:
    """Look at the lowest and the highest port that HARP may be given."""
    for way in context.ways:
        silent = [port for port, said in way.reach.ports.items() if said not in ANSWERED]
        if silent:
            yield warn(
                f"{way.name}: UDP port {_list(silent)} is silent, as if dropped; or it is in use.",
                *_allow(way, context, "udp"),
            )


@check("peer.tcp", "The peer answers TCP over each ENI", needs.live)
def check_tcp(context: Context) -> Iterator[Said]:
    """Look at TCP: HARP's control connection goes to a port of the kernel's choice."""
    for way in context.ways:
        wrong = {port: said for port, said in way.reach.tcp.items() if said not in {ECHO, REFUSED}}
        if wrong:
            yield fail(
                f"{way.name}: TCP port {_list(list(wrong))}: {_words(next(iter(wrong.values())))}.",
                *_allow(way, context, "tcp"),
            )


def _words(said: str) -> str:
    return "no answer" if said == SILENT else said


def _list(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))


def _allow(way: Way, context: Context, kind: str) -> tuple[str, ...]:
    low, high = (way.ports[0], way.ports[-1]) if kind == "udp" else ephemeral_ports(context.host)
    rule = f"{kind} dport {{ {context.options.port}, {low}-{high} }} ip saddr {way.source} accept"
    if ":" in way.source:
        rule = rule.replace("ip saddr", "ip6 saddr")
    return (
        f"nft insert rule inet filter input {rule}  # on {way.target}, if it filters",
        f"allow {kind} {low}-{high} from {way.source} in the security group of {way.target}",
    )
