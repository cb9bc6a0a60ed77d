# SPDX-License-Identifier: Apache-2.0
"""Interfaces of a lab given places on the PCI bus: conf files that name devices of this machine for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

PCI_DEVICES = Path("/sys/bus/pci/devices")


def pci_addresses(count: int) -> list[str]:
    """Name that many PCI devices of this machine, whatever they are; skip the test where it has fewer."""
    found = sorted(path.name for path in PCI_DEVICES.iterdir()) if PCI_DEVICES.is_dir() else []
    if len(found) < count:
        pytest.skip(f"{count} PCI devices are needed for places on the bus; this machine has {len(found)}")
    return found[:count]


def write_confs(folder: Path, addresses: Sequence[str]) -> Path:
    """Write a folder of conf files in which the first interface has the first address, and so on."""
    folder.mkdir()
    for number, address in enumerate(addresses):
        (folder / f"ztcp{number}.conf").write_text(f"[eni]\ninterface = eni{number}\npci = {address}\n")
    return folder
