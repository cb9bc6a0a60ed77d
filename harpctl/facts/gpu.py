# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's GPUs by PCI class and vendor; neither a driver nor a library of theirs is needed."""

from __future__ import annotations

from harpctl.facts import pci, text
from harpctl.facts.model import Gpu
from harpctl.host.host import Host

VENDOR = "10de"
CLASSES = ("0300", "0302")  # VGA controller, 3D controller


def collect_gpus(host: Host, unknown: list[str]) -> tuple[Gpu, ...]:
    """Gather the GPUs in the order of their PCI addresses, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them."""
    addresses = [name for name in host.list_dir(pci.DEVICES) if pci.ADDRESS.fullmatch(name)]
    if not addresses:
        unknown.append(f"GPUs and the place of ENIs are unknown: {pci.DEVICES} shows no device.")
    gpus: list[Gpu] = []
    for address in addresses:
        folder = f"{pci.DEVICES}/{address}"
        if _read_id(host, f"{folder}/vendor") == VENDOR and _read_id(host, f"{folder}/class")[:4] in CLASSES:
            _address, path = pci.pci_location(host, folder)
            gpus.append(
                Gpu(
                    index=len(gpus),
                    pci=address,
                    vendor=VENDOR,
                    device=_read_id(host, f"{folder}/device"),
                    node=pci.node_of(host, address),
                    path=path,
                )
            )
    return tuple(gpus)


def _read_id(host: Host, path: str) -> str:
    return text.read_word(host, path).removeprefix("0x")
