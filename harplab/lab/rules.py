# SPDX-License-Identifier: Apache-2.0
"""Rules by which the firewall drops packets on the way to a host's ENI and from it.

Where a switch joins the hosts, packets are dropped at its port, before AF_XDP takes them and after it has
sent them; else where they arrive, at one host's ENI or the other's, which AF_XDP passes by. Never where they
are sent: a kernel that drops its own packets knows it, and its TCP gives up early. A superframe counts as one
packet.
"""

from __future__ import annotations

import re

from harplab.lab.commands import Command, run_inside
from harplab.lab.spec import LabSpec, eni_name, fabric_name, host_names, port_name

IN, OUT = "in", "out"
DIRECTIONS = (IN, OUT)  # towards the host, from the host
CHANCE_UNITS = 1_000_000  # the firewall draws a number below this; a share is given in units of 1 / this
COUNTER = re.compile(r"counter packets (\d+)")


def _place_of_drops(spec: LabSpec, prefix: str, host: int, eni: int, direction: str) -> tuple[str, str, str]:
    """Return namespace, hook and device where one direction's packets of a host's ENI are dropped."""
    name = eni_name(eni)
    if spec.has_fabric:
        return fabric_name(prefix), "egress" if direction == IN else "ingress", port_name(host, name)
    return host_names(spec, prefix)[host if direction == IN else 1 - host], "ingress", name


def _chain_rules(device: str, hook: str, rule: str) -> str:
    return (
        "  chain drops {\n"
        f'    type filter hook {hook} device "{device}" priority 0; policy accept;\n'
        f"    {rule} counter drop\n"
        "  }\n"
    )


def share_rule(share: float) -> str:
    """Match that share of packets; neighbour discovery is spared, or a lost ARP would be the result."""
    drawn = f"numgen random mod {CHANCE_UNITS} < {round(share * CHANCE_UNITS)}"
    return f"meta l4proto {{ tcp, udp }} {drawn}"


def plan_loss(spec: LabSpec, prefix: str, host: int, eni: int) -> list[Command]:
    """Plan the loss that a lab has from its beginning, of what arrives at an ENI."""
    if not spec.loss_share:
        return []
    namespace, hook, device = _place_of_drops(spec, prefix, host, eni, IN)
    text = f"table netdev harp_loss_{device} {{\n{_chain_rules(device, hook, share_rule(spec.loss_share))}}}\n"
    return [run_inside(namespace, "nft", "-f", "-", stdin=text)]


def plan_drops(spec: LabSpec, prefix: str, host: int, eni: int, direction: str, share: float) -> Command:
    """Plan what is dropped of one direction, all of it at a share of 1; it replaces what was before."""
    namespace, hook, device = _place_of_drops(spec, prefix, host, eni, direction)
    table = f"table netdev {_drops_table(host, eni, direction)}"
    chain = _chain_rules(device, hook, "" if share >= 1 else share_rule(share))
    text = f"{table} {{ }}\ndelete {table}\n" + (f"{table} {{\n{chain}}}\n" if share else "")
    return run_inside(namespace, "nft", "-f", "-", stdin=text)


def show_drops(spec: LabSpec, prefix: str, host: int, eni: int, direction: str) -> Command:
    """Make the command that lists those rules; it fails where there are none."""
    namespace, _, _ = _place_of_drops(spec, prefix, host, eni, direction)
    return run_inside(namespace, "nft", "list", "table", "netdev", _drops_table(host, eni, direction))


def _drops_table(host: int, eni: int, direction: str) -> str:
    return f"harp_drops_{host}_{eni}_{direction}"


def read_drops(listed: str) -> int:
    """Read how many packets those rules have dropped."""
    return sum(map(int, COUNTER.findall(listed)))
