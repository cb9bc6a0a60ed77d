# SPDX-License-Identifier: Apache-2.0
"""The ENIs that a host uses, their GPUs, and the cores that serve each: facts in, choice out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

import msgspec

from harpctl.confs.table import BOUNDS
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.distance import distance_between
from harpctl.facts.model import Cpu, Eni, Facts, Gpu
from harpctl.network.plan import reason_to_refuse, refuse_primary
from harpctl.setup.options import SetupOptions

GPU_COUNT_MAX = 64
JOB_SHARE = 2  # one core in so many of a node may go to engines


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One ENI, the GPU it is meant for (None: any), and the cores of its engine (none: it runs inline)."""

    number: int
    eni: Eni
    address: str = ""  # with prefix length; "" where none is known
    gateway: str = ""
    gpu: Gpu | None = None
    cores: tuple[int, ...] = ()


def gpu_count(facts: Facts, options: SetupOptions) -> int:
    """Return the number of GPUs: as given, else as found. Raises where there is none."""
    count = len(facts.gpus) if options.overrides.gpus is None else options.overrides.gpus
    if count == 0 and options.overrides.gpus is None:
        raise HarpError(
            "No GPU was found on the PCI bus (vendor 10de, class 0300 or 0302).",
            "State their number: harpctl setup --gpus 8",
            ExitCode.MISSING,
        )
    if not 1 <= count <= GPU_COUNT_MAX:
        raise HarpError(f"--gpus {count}: expected 1 to {GPU_COUNT_MAX}.", "For example: --gpus 8", ExitCode.USAGE)
    return count


def _natural_order(eni: Eni) -> tuple[object, ...]:
    words = re.split(r"(\d+)", eni.name)
    return tuple((1, int(word), "") if word.isdigit() else (0, 0, word) for word in words)


def _is_link_local(eni: Eni) -> bool:
    """Return whether all of its addresses are link-local, as those of a BMC's interface are."""
    addresses = [ipaddress.ip_interface(address).ip for address in eni.addresses]
    return bool(addresses) and all(address.is_link_local for address in addresses)


def find_candidates(facts: Facts) -> list[Eni]:
    """Return the ENIs that HARP may take unasked: devices off the default route, in natural order."""
    enis = [eni for eni in facts.enis if eni.kind == "" and not reason_to_refuse(eni) and not _is_link_local(eni)]
    return sorted(enis, key=_natural_order)


def _find_named(facts: Facts, options: SetupOptions) -> list[Eni]:
    enis = []
    for name in options.enis:
        eni = facts.find_eni(name)
        if eni is None:
            known = ", ".join(eni.name for eni in facts.enis) or "none"
            raise HarpError(
                f"--enis: there is no interface {name}; this host has: {known}.",
                "Take the names from `harpctl facts`.",
                ExitCode.MISSING,
            )
        if not options.force:
            refuse_primary(eni)
        enis.append(eni)
    return enis


def choose_enis(facts: Facts, options: SetupOptions) -> list[Eni]:
    """Return the ENIs to set up: those named, else one per GPU, the nearest ones where there are more.

    Raises where a named one may not be touched, and where there are fewer than GPUs.
    """
    if len(options.enis) > BOUNDS.conf_files_max:
        raise HarpError(
            f"--enis names {len(options.enis)} interfaces: HARP uses at most {BOUNDS.conf_files_max}.",
            "Name fewer.",
            ExitCode.USAGE,
        )
    if options.enis:
        return _find_named(facts, options)
    count, found = min(gpu_count(facts, options), BOUNDS.conf_files_max), find_candidates(facts)
    if len(found) < count:
        names = ",".join(eni.name for eni in found)
        kept = ", ".join(f"{eni.name} {reason_to_refuse(eni)}" for eni in facts.enis if reason_to_refuse(eni))
        raise HarpError(
            f"{count} GPUs need {count} secondary ENIs, one each; this host has {len(found)}"
            f"{f' ({names})' if names else ''}{f'; {kept}' if kept else ''}.",
            f"Bind {count - len(found)} more, or go on with fewer: harpctl setup --enis {names or 'NAME'}",
            ExitCode.MISSING,
        )
    if len(found) > count and facts.gpus:
        chosen = [eni for _gpu, eni in pair_gpus(facts.gpus[:count], found)]
        return [eni for eni in found if eni in chosen]
    return found[:count]


def pair_gpus(gpus: Sequence[Gpu], enis: Sequence[Eni]) -> list[tuple[Gpu, Eni]]:
    """Pair each GPU with an ENI of its own, the nearest pairs first; in the order of the GPUs.

    Where distances are equal GPUs and ENIs pair in their given order. Ends when one of both runs out.
    """
    open_gpus, open_enis = list(range(len(gpus))), list(range(len(enis)))
    pairs = []
    while open_gpus and open_enis:
        _far, g, e = min((distance_between(gpus[g], enis[e]), g, e) for g in open_gpus for e in open_enis)
        pairs.append((g, e))
        open_gpus.remove(g)
        open_enis.remove(e)
    return [(gpus[g], enis[e]) for g, e in sorted(pairs)]


def assign_cores(cpus: Sequence[Cpu], enis: Sequence[Eni]) -> list[tuple[int, ...]]:
    """Assign each ENI one hardware thread of a core of its own NUMA node; no core twice.

    Each that is named gets an engine, which has the core for itself while its other threads rest. A node's
    first core is left to the system and half of its cores to the job. Where too few remain, the ENIs that
    come last get none; where all get none, engines run inline. An ENI whose node is unknown, or whose node
    is used up, takes from the node with most cores left.
    """
    free: dict[int, list[tuple[int, ...]]] = {}
    for cpu in sorted(cpus, key=lambda cpu: cpu.id):
        cores = free.setdefault(cpu.node, [])
        if tuple(sorted(cpu.core)) not in cores:
            cores.append(tuple(sorted(cpu.core)))
    for node, cores in free.items():
        free[node] = cores[1 : 1 + len(cores) // JOB_SHARE]
    taken = []
    for eni in enis:
        node = eni.node if free.get(eni.node) else max(free, key=lambda n: (len(free[n]), -n), default=-1)
        taken.append(free[node].pop(0)[:1] if free.get(node) else ())
    return taken


def make_choices(facts: Facts, options: SetupOptions) -> list[Choice]:
    """Return the whole choice: ENIs numbered in their order, each with its address, its GPU and its cores.

    An address from the options takes precedence over the ENI's own.
    """
    enis = choose_enis(facts, options)
    gpu_of = {eni.name: gpu for gpu, eni in pair_gpus(facts.gpus, enis)}
    cores = assign_cores(facts.cpus, enis)
    return [
        Choice(
            number=number,
            eni=eni,
            address=options.overrides.addresses.get(eni.name) or next(iter(eni.addresses), ""),
            gateway=options.overrides.gateways.get(eni.name) or eni.gateway,
            gpu=gpu_of.get(eni.name),
            cores=cores[number],
        )
        for number, eni in enumerate(enis)
    ]
