# SPDX-License-Identifier: Apache-2.0
"""Finds a device's place on the PCI bus, from the path of its folder in sysfs."""

from __future__ import annotations

import re

from harpctl.facts import text
from harpctl.host.host import Host

DEVICES = "/sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def pci_location(host: Host, link: str) -> tuple[str, tuple[str, ...]]:
    """Return a device's PCI address, and its host bridge and the bridges above it from there down.

    `link` leads to any folder of the device, as that of a network interface or of a virtio device on it.
    Both are empty where the path shows no PCI device.
    """
    parts = (host.leads_to(link) or "").split("/")
    chain = [part for part in parts if ADDRESS.fullmatch(part) or HOST_BRIDGE.fullmatch(part)]
    if not chain or not ADDRESS.fullmatch(chain[-1]):
        return "", ()
    return chain[-1], tuple(chain[:-1])


def node_of(host: Host, address: str) -> int:
    """Return the NUMA node of a PCI device; -1 where it is unknown or the machine has only one."""
    return text.parse_number(text.read_word(host, f"{DEVICES}/{address}/numa_node")) if address else -1
