# SPDX-License-Identifier: Apache-2.0
"""Distances between PCI devices, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

from harpctl.facts.model import Eni, Gpu

LEGEND = {
    "X": "itself",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, but no PCIe host bridge",
    "PHB": "a PCIe host bridge (typically the CPU)",
    "NODE": "several PCIe host bridges within one NUMA node",
    "SYS": "the interconnect between NUMA nodes",
    "?": "unknown: the PCI path of one of them does not show",
}
ORDER = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "?")


def relation_between(one: Gpu | Eni, other: Gpu | Eni) -> str:
    """Return the word for what lies between two devices; "?" where the facts do not show it.

    `path` holds the bridges above a device from the root complex down, its first item being the host bridge.
    """
    if one == other:
        return "X"
    if one.path and other.path and one.path[0] == other.path[0]:
        common = 0
        for a, b in zip(one.path, other.path, strict=False):
            if a != b:
                break
            common += 1
        if common == 1:
            return "PHB"
        # The ports of one switch are bridges of their own; the switch counts once.
        return "PIX" if max(len(one.path), len(other.path)) - common <= 1 else "PXB"
    if one.node < 0 or other.node < 0:
        return "?"
    return "NODE" if one.node == other.node else "SYS"


def distance_between(one: Gpu | Eni, other: Gpu | Eni) -> int:
    """Return a number that is smaller the nearer two devices are."""
    return ORDER.index(relation_between(one, other))
