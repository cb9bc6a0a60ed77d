# SPDX-License-Identifier: Apache-2.0
"""Checks of the network path to a given peer: it answers over each ENI, at the whole MTU, on HARP's ports."""

from __future__ import annotations

from collections.abc import Iterator

from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, fail, of_link, skip, warn
from harpctl.doctor.path_probe import ANSWERED, ECHO, REFUSED, SILENT, TOO_BIG
from harpctl.doctor.peer_probes import PeerProbe
from harpctl.doctor.port_sweep import Ranges
from harpctl.ip import is_ipv6

SPANS_SHOWN = 8


@check("peer.name", "The peer has addresses that an ENI can send to", needs.machine)
def check_name(context: Context) -> Iterator[CheckResult]:
    """Resolve the peer's names."""
    for peer in context.options.peers:
        if outcome := context.machine.resolve(peer)[1]:
            yield fail(
                f"{peer} has no address: {outcome}.", "give the addresses of its ENIs: --peer ADDRESS,ADDRESS"
            )
    if not context.peer_probes:
        yield fail(
            "No ENI of this host has a conf file and an address of the peer's family, so nothing was sent.",
            "harpctl setup",
        )


@check("peer.udp", "The peer answers UDP over each ENI", needs.machine)
def check_udp(context: Context) -> Iterator[CheckResult]:
    """Look at the smallest datagrams."""
    for probe in context.peer_probes:
        if probe.result.udp not in ANSWERED:
            yield fail(
                f"{probe.name}: {_outcome_text(probe.result.udp)}.",
                *_commands_to_allow(probe, context, "udp"),
            )


@check("peer.mtu", "Packets of the whole MTU reach the peer", needs.machine)
def check_mtu(context: Context) -> Iterator[CheckResult]:
    """Look at the packets that fill the MTU, which may not be fragmented."""
    for probe in context.peer_probes:
        if not probe.result.full or probe.result.full in ANSWERED:
            continue
        how = "a router reports that it is too big" if probe.result.full == TOO_BIG else "it is lost"
        yield fail(
            f"{probe.name}: of the MTU {probe.mtu}, {how}; {probe.result.passed} bytes pass.",
            f"{of_link(probe.eni, 'mtu', probe.result.passed)}  # on both hosts, or raise it on the way",
        )


@check("peer.both_ways", "The peer's responder proves both directions", needs.machine, validates=False)
def check_both_ways(context: Context) -> Iterator[CheckResult]:
    """Look for probes that were only refused: a refusal is smaller than the request."""
    refused = [probe for probe in context.peer_probes if REFUSED in {probe.result.udp, probe.result.full}]
    if refused:
        targets = ", ".join(dict.fromkeys(probe.target for probe in refused))
        yield warn(
            f"Nobody listens on port {context.options.port} of {targets}: the path there works, the path"
            " back at full MTU is not.",
            f"harpctl doctor --serve --port {context.options.port}  # on the peer, then again here",
        )


@check("peer.ports", "No firewall drops UDP to the ports that HARP uses", needs.machine, validates=False)
def check_ports(context: Context) -> Iterator[CheckResult]:
    """Look at all ports that HARP may be given; where the responder does not see them, at both ends."""
    yield from _report_closed_ports(context, "udp")
    for reason in dict.fromkeys(one.sweep.why_not for one in context.peer_probes if one.sweep):
        if reason:
            yield skip(f"Not all ports were tried: {reason}.")
    for probe in context.peer_probes:
        if _is_swept(probe):
            continue
        silent = [port for port, outcome in probe.result.ports.items() if outcome not in ANSWERED]
        if silent:
            yield warn(
                f"{probe.name}: UDP port {_join_numbers(silent)} is silent, as if dropped; or it is in use.",
                *_commands_to_allow(probe, context, "udp"),
            )


@check("peer.tcp", "The peer answers TCP over each ENI", needs.machine)
def check_tcp(context: Context) -> Iterator[CheckResult]:
    """Look at the ports on which HARP accepts connections, as at those of UDP, and at the responder's."""
    yield from _report_closed_ports(context, "tcp")
    for probe in context.peer_probes:
        wrong = {
            port: outcome
            for port, outcome in probe.result.tcp.items()
            if outcome not in {ECHO, REFUSED} and (port == context.options.port or not _is_swept(probe))
        }
        if wrong:
            ports, outcome = _join_numbers(list(wrong)), _outcome_text(next(iter(wrong.values())))
            yield fail(
                f"{probe.name}: TCP port {ports}: {outcome}.",
                *_commands_to_allow(probe, context, "tcp"),
            )


def _is_swept(probe: PeerProbe) -> bool:
    return probe.sweep is not None and not probe.sweep.why_not


def _report_closed_ports(context: Context, kind: str) -> Iterator[CheckResult]:
    """Report the ports that packets do not reach: one result for the pairs with the same ones."""
    groups: dict[Ranges, list[PeerProbe]] = {}
    for probe in context.peer_probes:
        sweep = probe.sweep if _is_swept(probe) else None
        if sweep and (closed := sweep.udp if kind == "udp" else sweep.tcp):
            groups.setdefault(closed, []).append(probe)
    for closed, probes in groups.items():
        count = sum(high - low + 1 for low, high in closed)
        whole = probes[0].ports[-1] - probes[0].ports[0] + 1
        names = ", ".join(probe.name for probe in probes)
        yield fail(
            f"{kind.upper()} does not reach {count} of {whole} ports, {_ranges_text(closed)}: {names}.",
            *(repair for probe in probes for repair in _commands_to_allow(probe, context, kind)),
        )


def _ranges_text(closed: Ranges) -> str:
    """Return ranges in words, the first few of many."""
    words = [str(low) if low == high else f"{low}-{high}" for low, high in closed]
    more = f" and {len(words) - SPANS_SHOWN} more ranges" if len(words) > SPANS_SHOWN else ""
    return ", ".join(words[:SPANS_SHOWN]) + more


def _outcome_text(outcome: str) -> str:
    return "no answer" if outcome == SILENT else outcome


def _join_numbers(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))


def _commands_to_allow(probe: PeerProbe, context: Context, kind: str) -> tuple[str, ...]:
    low, high = probe.ports[0], probe.ports[-1]
    rule = f"{kind} dport {{ {context.options.port}, {low}-{high} }} ip saddr {probe.source} accept"
    if is_ipv6(probe.source):
        rule = rule.replace("ip saddr", "ip6 saddr")
    return (
        f"nft insert rule inet filter input {rule}  # on {probe.target}, if it filters",
        f"allow {kind} {low}-{high} from {probe.source} in the security group of {probe.target}",
    )
