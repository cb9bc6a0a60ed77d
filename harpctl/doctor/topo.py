# SPDX-License-Identifier: Apache-2.0
"""The matrix of GPUs and ENIs as `nvidia-smi topo -m` writes it, and the ENI of each GPU by setup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich import box
from rich.table import Table

from harpctl.confs.values import write_cores
from harpctl.facts.distance import LEGEND, relation_between
from harpctl.facts.model import Eni, Facts, Gpu
from harpctl.facts.unasked import why_left_out
from harpctl.setup.choose import find_candidates, pair_gpus

LISTED_MAX = 16  # a host may have hundreds of interfaces for its containers


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the matrix."""

    name: str  # GPU0, or the interface's name
    pci: str
    relations: dict[str, str]  # to every device, by its name
    cpus: str = ""  # "0-47", the processors of its node
    numa: int = -1
    partner: str = ""  # the ENI that setup assigns to this GPU, or the GPU to this ENI


class Topo(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix: GPUs in their order, then ENIs."""

    devices: tuple[Device, ...]
    unasked: dict[str, str] = {}  # the reason why the plugin does not choose an interface; "": it does


def make_topo(facts: Facts) -> Topo:
    """Compute the matrix from facts alone. ENIs on the default route are shown; setup does not take them."""
    gpus, enis = facts.gpus, tuple(eni for eni in facts.enis if not eni.kind)
    named: list[tuple[str, Gpu | Eni]] = [(f"GPU{gpu.index}", gpu) for gpu in gpus]
    named += [(eni.name, eni) for eni in enis]
    partners: dict[str, str] = {}
    for gpu, eni in pair_gpus(gpus, find_candidates(facts)):
        partners[f"GPU{gpu.index}"] = eni.name
        partners[eni.name] = f"GPU{gpu.index}"
    cpus = {node.id: write_cores(tuple(sorted(node.cpus))) for node in facts.memory.nodes}
    return Topo(
        devices=tuple(
            Device(
                name=name,
                pci=device.pci,
                relations={other: relation_between(device, peer) for other, peer in named},
                cpus=cpus.get(device.node, ""),
                numa=device.node,
                partner=partners.get(name, ""),
            )
            for name, device in named
        ),
        unasked=why_left_out(facts.enis),
    )


def draw_topo(topo: Topo) -> tuple[Table, Sequence[str]]:
    """Return the matrix as a table, and the lines below it."""
    names = [device.name for device in topo.devices]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", *names, "CPU affinity", "NUMA", "PCI", "HARP"):
        table.add_column(heading, no_wrap=True)
    for device in topo.devices:
        numa = str(device.numa) if device.numa >= 0 else "?"
        words = [device.relations[name] for name in names]
        table.add_row(device.name, *words, device.cpus or "?", numa, device.pci or "-", device.partner or "-")
    return table, list(_topo_notes(topo))


def _topo_notes(topo: Topo) -> Iterable[str]:
    if topo.devices:
        used = {word for device in topo.devices for word in device.relations.values()}
        yield from (f"  {word:<5} {meaning}" for word, meaning in LEGEND.items() if word in used)
        yield "  HARP  the ENI that `harpctl setup` assigns to a GPU, one each, the nearest pairs first"
    else:
        yield "There are no GPUs and no ENIs."
    taken = [name for name, why in topo.unasked.items() if not why]
    others = [f"{name} ({why})" for name, why in topo.unasked.items() if why]
    yield f"Without setup, NCCL_NET=HARP alone uses {_join_names(taken)}; left out: {_join_names(others)}."


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more or "none"
