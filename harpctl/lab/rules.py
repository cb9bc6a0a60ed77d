# SPDX-License-Identifier: Apache-2.0
"""What the firewall throws away on the way to a host's ENI and from it.

Where a switch joins the hosts, packets are dropped at its port, before AF_XDP takes them and after it has
sent them; else at the ENI itself, which AF_XDP passes by. A superframe counts as one packet.
"""

from __future__ import annotations

import re

from harpctl.lab.spec import LabSpec, eni_name, fabric_name, host_names, port_name
from harpctl.lab.steps import Command, run_inside

IN, OUT = "in", "out"
WAYS = (IN, OUT)  # towards the host, from the host
CHANCE_UNITS = 1_000_000  # the firewall draws a number below this; a share is told in parts of it
COUNTER = re.compile(r"chain (?P<way>in|out) \{.*?counter packets (?P<count>\d+)", re.DOTALL)


def place(spec: LabSpec, prefix: str, host: int, eni: int) -> tuple[str, str]:
    """Return namespace and device where packets of a host's ENI are dropped."""
    name = eni_name(eni)
    if spec.has_fabric:
        return fabric_name(prefix), port_name(host, name)
    return host_names(spec, prefix)[host], name


def _hook(spec: LabSpec, way: str) -> str:
    return "egress" if (way == IN) == spec.has_fabric else "ingress"


def _chain(spec: LabSpec, device: str, name: str, way: str, rule: str) -> str:
    return (
        f"  chain {name} {{\n"
        f'    type filter hook {_hook(spec, way)} device "{device}" priority 0; policy accept;\n'
        f"    {rule} counter drop\n"
        "  }\n"
    )


def share_rule(share: float) -> str:
    """Match that share of packets; neighbour discovery is spared, or a lost ARP would be the result."""
    drawn = f"numgen random mod {CHANCE_UNITS} < {round(share * CHANCE_UNITS)}"
    return f"meta l4proto {{ tcp, udp }} {drawn}"


def plan_loss(spec: LabSpec, prefix: str, host: int, eni: int) -> list[Command]:
    """Plan the loss that a lab has from its beginning, of what arrives at an ENI."""
    if not spec.loss:
        return []
    namespace, device = place(spec, prefix, host, eni)
    chain = _chain(spec, device, f"loss_{device}", IN, share_rule(spec.loss))
    return [run_inside(namespace, "nft", "-f", "-", stdin=f"table netdev harp_loss {{\n{chain}}}\n")]


def plan_drops(spec: LabSpec, prefix: str, host: int, eni: int, shares: dict[str, float]) -> Command:
    """Plan what is dropped of each way, all of it at a share of 1; it replaces what was before."""
    namespace, device = place(spec, prefix, host, eni)
    table = f"table netdev {drops_table(device)}"
    chains = "".join(
        _chain(spec, device, way, way, "" if share >= 1 else share_rule(share))
        for way, share in shares.items()
        if share
    )
    text = f"{table} {{ }}\ndelete {table}\n" + (f"{table} {{\n{chains}}}\n" if chains else "")
    return run_inside(namespace, "nft", "-f", "-", stdin=text)


def show_drops(spec: LabSpec, prefix: str, host: int, eni: int) -> Command:
    """Make the command that lists those rules; it fails where there are none."""
    namespace, device = place(spec, prefix, host, eni)
    return run_inside(namespace, "nft", "list", "table", "netdev", drops_table(device))


def drops_table(device: str) -> str:
    """Name the table of an ENI's drops."""
    return f"harp_drops_{device}"


def read_drops(listed: str) -> dict[str, int]:
    """Read how many packets of each way the rules have dropped."""
    return {match["way"]: int(match["count"]) for match in COUNTER.finditer(listed)}
