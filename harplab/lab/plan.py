# SPDX-License-Identifier: Apache-2.0
"""The commands that make a lab: pure functions, nothing is run here.

Two hosts are joined by one veth pair per ENI; more hosts, or two with a switch, by bridges in a namespace of
their own: one per ENI, or one for all where they share a subnet.
"""

from __future__ import annotations

import sys

from harplab.lab.caps import plan_caps
from harplab.lab.commands import Command, ip_inside, run_inside
from harplab.lab.routes import address_words, plan_arp, plan_router, plan_routes
from harplab.lab.rules import plan_loss
from harplab.lab.spec import (
    TCP_BUFFER_DEFAULT_KIB,
    TCP_BUFFER_MIN_KIB,
    LabSpec,
    Offload,
    Subnets,
    bridge_name,
    eni_name,
    fabric_name,
    host_names,
    lab_namespaces,
    port_name,
)

BIG_TCP_MODULE = "harplab.lab.big_tcp"
# Not its peer's: Linux takes a link between equal indices for a real one, and is a second late.
INDEX_FIRST = 1000


def tools_needed(spec: LabSpec) -> list[str]:
    """Return the programs that building this lab runs."""
    tools = ["ip"]
    if spec.is_capped:
        tools.append("tc")
    if spec.loss_share or spec.flow_cap_mbps is not None:
        tools.append("nft")
    if spec.cutting is not Offload.STOCK:
        tools.append("ethtool")
    if spec.subnets is not Subnets.EACH or spec.tcp_buffer_kib is not None:
        tools.append("sysctl")
    if spec.unprivileged:
        tools.append("setpriv")
    return tools


def plan_namespaces(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the part that has to happen while the machine's congestion control is the wanted one."""
    return [Command(("ip", "netns", "add", name)) for name in lab_namespaces(spec, prefix)]


def plan_network(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan links, addresses, routes, offloads, caps and loss inside namespaces that exist."""
    spec.check()
    plan = [ip_inside(name, "link", "set", "lo", "up") for name in lab_namespaces(spec, prefix)]
    plan += _plan_fabric(spec, prefix) if spec.has_fabric else _plan_pairs(spec, prefix)
    for host, name in enumerate(host_names(spec, prefix)):
        plan += _plan_tcp_buffers(spec, name)
        for eni in range(spec.eni_count(host)):
            plan += _plan_eni(spec, name, host, eni)
            plan += plan_caps(spec, prefix, host, eni, spec.cap_of(eni))
            plan += plan_loss(spec, prefix, host, eni)
    return plan + _plan_big_tcp(spec, prefix)


def plan_build(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the whole lab."""
    return plan_namespaces(spec, prefix) + plan_network(spec, prefix)


def plan_destroy(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the end: links and rules go with their namespaces."""
    return [Command(("ip", "netns", "delete", name)) for name in lab_namespaces(spec, prefix)]


def _plan_big_tcp(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan larger packets for all ENIs and the bridges' ports, by netlink: ip before 6.3 lacks IPv4's."""
    if not spec.big_tcp:
        return []
    enis = [[eni_name(eni) for eni in range(spec.eni_count(host))] for host in range(spec.hosts)]
    links = dict(zip(host_names(spec, prefix), enis, strict=True))
    if spec.has_fabric:
        links[fabric_name(prefix)] = [port_name(host, name) for host, names in enumerate(enis) for name in names]
    words = (sys.executable, "-m", BIG_TCP_MODULE)
    return [run_inside(namespace, *words, *names) for namespace, names in links.items()]


def _plan_tcp_buffers(spec: LabSpec, namespace: str) -> list[Command]:
    if spec.tcp_buffer_kib is None:
        return []
    kib = (TCP_BUFFER_MIN_KIB, min(TCP_BUFFER_DEFAULT_KIB, spec.tcp_buffer_kib), spec.tcp_buffer_kib)
    values = " ".join(str(number * 1024) for number in kib)
    words = [f"net.ipv4.tcp_{name}={values}" for name in ("rmem", "wmem")]
    return [run_inside(namespace, "sysctl", "-q", "-w", *words)]


def _plan_pairs(spec: LabSpec, prefix: str) -> list[Command]:
    one, other = host_names(spec, prefix)
    queues = ("numrxqueues", str(spec.queues), "numtxqueues", str(spec.queues))
    plan = []
    for eni, name in enumerate(eni_name(eni) for eni in range(spec.enis)):
        index = ("index", str(INDEX_FIRST + eni))
        pair = ("type", "veth", "peer", "name", name, *queues, "netns", other)
        plan.append(ip_inside(one, "link", "add", name, *index, *queues, *pair))
    return plan


def _plan_fabric(spec: LabSpec, prefix: str) -> list[Command]:
    fabric, plan = fabric_name(prefix), []
    for bridge in dict.fromkeys(bridge_name(spec, eni) for eni in range(spec.enis)):
        plan += [
            ip_inside(fabric, "link", "add", bridge, "type", "bridge"),
            ip_inside(fabric, "link", "set", bridge, "mtu", str(spec.mtu_bytes), "up"),
        ]
    for host, namespace in enumerate(host_names(spec, prefix)):
        for eni in range(spec.eni_count(host)):
            name, port = eni_name(eni), port_name(host, eni_name(eni))
            pair = ("type", "veth", "peer", "name", port, "netns", fabric)
            join = ("mtu", str(spec.mtu_bytes), "master", bridge_name(spec, eni), "up")
            plan += [
                ip_inside(namespace, "link", "add", name, *pair),
                ip_inside(fabric, "link", "set", port, *join),
            ]
    return plan + plan_router(spec, prefix)


def _plan_eni(spec: LabSpec, namespace: str, host: int, eni: int) -> list[Command]:
    name = eni_name(eni)
    plan = plan_arp(spec, namespace, eni)
    plan += [
        ip_inside(namespace, *address_words(spec, host, eni)),
        ip_inside(namespace, "link", "set", name, "mtu", str(spec.mtu_bytes), "up"),
    ]
    plan += plan_routes(spec, namespace, host, eni)
    if spec.cutting is not Offload.STOCK:
        gro = "on" if spec.cutting is Offload.SEGMENT else "off"
        words = ("tso", "off", "gso", "off", "tx-udp-segmentation", "off", "gro", gro)
        plan.append(run_inside(namespace, "ethtool", "-K", name, *words))
    if spec.rps_cores:
        plan += [_plan_rps(spec, namespace, host, name, queue) for queue in range(spec.queues)]
    return plan


def _plan_rps(spec: LabSpec, namespace: str, host: int, name: str, queue: int) -> Command:
    mask = 1 << host % spec.rps_cores
    file = f"/sys/class/net/{name}/queues/rx-{queue}/rps_cpus"
    return run_inside(namespace, "tee", file, stdin=f"{mask:x}\n")
