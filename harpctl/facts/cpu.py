# SPDX-License-Identifier: Apache-2.0
"""The processors that are online, the cores that their hardware threads share, and their NUMA nodes."""

from __future__ import annotations

import re

from harpctl.facts import text
from harpctl.facts.model import Cpu, Node
from harpctl.host.host import Host

CPUS = "/sys/devices/system/cpu"


def collect_cpus(host: Host, nodes: tuple[Node, ...], unknown: list[str]) -> tuple[Cpu, ...]:
    """Gather the processors; their node is -1 where no node lists them."""
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    cpus = []
    for name in host.list_dir(CPUS):
        match = re.fullmatch(r"cpu([0-9]{1,5})", name, re.ASCII)
        if match is None or text.read_word(host, f"{CPUS}/{name}/online") == "0":
            continue
        number = int(match[1])
        siblings = text.number_list(text.read_clean(host, f"{CPUS}/{name}/topology/thread_siblings_list"))
        core = siblings if number in siblings else (number,)
        cpus.append(Cpu(id=number, node=node_of.get(number, -1), core=core))
    if not cpus:
        unknown.append(f"The processors are unknown: {CPUS} does not show them.")
    return tuple(sorted(cpus, key=lambda cpu: cpu.id))
