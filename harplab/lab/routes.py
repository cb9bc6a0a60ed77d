# SPDX-License-Identifier: Apache-2.0
"""Reachability: policy routing where ENIs of different numbers talk, as `harpctl setup` makes it.

What is sent from an ENI's address leaves by that ENI; each ENI answers ARP for its own address only.
"""

from __future__ import annotations

from harplab.lab.commands import Command, ip_inside, run_inside
from harplab.lab.spec import LabSpec, Subnets, bridge_name, eni_address, eni_name, fabric_name

TABLE_FIRST = 7700
ARP = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}


def prefix_bits(spec: LabSpec) -> int:
    """Return the length of an ENI's subnet."""
    return 16 if spec.subnets is Subnets.ONE else 24


def address_words(spec: LabSpec, host: int, eni: int) -> list[str]:
    """Return the words of `ip` that give an ENI its address."""
    return ["address", "add", f"{eni_address(host, eni)}/{prefix_bits(spec)}", "dev", eni_name(eni)]


def plan_arp(spec: LabSpec, namespace: str, eni: int) -> list[Command]:
    """Plan what an ENI answers for."""
    if spec.subnets is Subnets.EACH:
        return []
    values = [f"net.ipv4.conf.{eni_name(eni)}.{name}={value}" for name, value in ARP.items()]
    return [run_inside(namespace, "sysctl", "-qw", *values)]


def plan_routes(spec: LabSpec, namespace: str, host: int, eni: int) -> list[Command]:
    """Plan the table and the rule of an ENI that is up; they replace those that are there."""
    if spec.subnets is Subnets.EACH:
        return []
    address, name, table = eni_address(host, eni), eni_name(eni), str(TABLE_FIRST + eni)
    subnet = "10.77.0.0/16" if spec.subnets is Subnets.ONE else f"10.77.{eni}.0/24"
    tables = ["table " + table, *(["table main"] if eni == 0 else [])]
    lines = [f"route replace {subnet} dev {name} scope link table {table}"]
    if spec.subnets is Subnets.ROUTED:
        lines += [f"route replace default via {gateway_of_subnet(eni)} dev {name} {where}" for where in tables]
    batch = Command(("ip", "-netns", namespace, "-batch", "-"), "\n".join(lines) + "\n")
    rule = ("from", address, "table", table, "priority", table)
    return [batch, ip_inside(namespace, "rule", "add", *rule)]


def plan_reroute(spec: LabSpec, namespace: str, host: int, eni: int) -> list[Command]:
    """Plan what an ENI that was down, or without its address, has lost; its rule has stayed."""
    return plan_routes(spec, namespace, host, eni)[:1]


def gateway_of_subnet(eni: int) -> str:
    """Return the router's address in a subnet."""
    return f"10.77.{eni}.254"


def plan_router(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the router between the subnets: the fabric's own kernel."""
    if spec.subnets is not Subnets.ROUTED:
        return []
    fabric = fabric_name(prefix)
    plan = [run_inside(fabric, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0")]
    for eni in range(spec.enis):
        words = ("address", "add", f"{gateway_of_subnet(eni)}/24", "dev", bridge_name(spec, eni))
        plan.append(ip_inside(fabric, *words))
    return plan
