# SPDX-License-Identifier: Apache-2.0
"""The ztcp<N>.conf files of a choice: values from the host are written, the operator's tuning is kept."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from harpctl.change.steps import AnyStep, Group, RemoveFile, WriteFile
from harpctl.confs.conf import Conf, conf_of, conf_path, render_conf
from harpctl.confs.table import KEYS
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Facts
from harpctl.facts.sources import Sources
from harpctl.setup.choose import Choice
from harpctl.setup.options import SetupOptions
from harpctl.units import short_size

# The keys that setup writes; the operator tunes every other one.
OWNED = {"interface", "mac", "address", "gateway", "pci", "numa", "speed_mbps", "cores", "gpu", "page_size"}
OUR_SECTION = re.compile(r"^[ \t]*\[eni\]", re.MULTILINE)
FALLBACKS = ("speed_mbps",)  # the host's own value comes first


def _wanted_conf(choice: Choice, options: SetupOptions) -> Conf:
    """Return the values from the host: the ENI's identity and place, the pages, the cores and the GPU."""
    eni = choice.eni
    return Conf(
        interface=eni.name,
        mac=eni.mac or None,
        address=str(ipaddress.ip_interface(choice.address).ip) if choice.address else None,
        gateway=choice.gateway or None,
        mtu=options.mtu,
        pci=eni.pci or None,
        numa=eni.node if eni.node >= 0 else None,
        speed_mbps=options.speed_mbps or eni.speed_mbps or options.cloud_mbps,
        cores=choice.cores or None,
        gpu=choice.gpu.index if choice.gpu else None,
        page_size=short_size(options.page_size),
    )


def _merge_confs(wanted: Conf, existing: Conf) -> Conf:
    """Return `wanted` with the operator's tuning of the same interface."""
    kept = {name: existing.get(name) for name in KEYS if name not in OWNED}
    kept |= {name: existing.get(name) for name in FALLBACKS}
    ours = {name: value for name in KEYS if (value := wanted.get(name)) is not None}
    return conf_of(kept | ours)


def confs_by_interface(facts: Facts, sources: Sources) -> dict[str, Conf]:
    """Return the conf files that can be read by interface; of two the one that the plugin reads first.

    The interface is the kernel's name, also where the file has an alternative one.
    """
    found = (file.conf for file in reversed(sources.confs) if file.conf is not None)
    return {facts.name_of(conf.interface): conf for conf in found}


def _refuse_wrong(sources: Sources) -> None:
    """Raise where a conf file can't be parsed: to write it again would lose the operator's tuning.

    A file of another program, without the section that each of ours has, is replaced.
    """
    for file in sources.confs:
        if file.wrong and OUR_SECTION.search(sources.read_text(file.path) or ""):
            raise HarpError(
                file.wrong,
                f"Correct it by hand, or set it aside: mv {file.path} {file.path}.bak",
                ExitCode.WRONG_DATA,
            )


def plan_confs(facts: Facts, sources: Sources, choices: Sequence[Choice], options: SetupOptions) -> Group:
    """Plan one file per ENI, and no others. A file with the same values stays as it is."""
    steps: list[AnyStep] = []
    _refuse_wrong(sources)
    tuned = confs_by_interface(facts, sources)
    there = {file.path: file.conf for file in sources.confs}
    for choice in choices:
        path, wanted = conf_path(choice.number), _wanted_conf(choice, options)
        if existing := tuned.get(choice.eni.name):
            wanted = _merge_confs(wanted, existing)
        if wanted != there.get(path):
            steps.append(WriteFile(path=path, data=render_conf(wanted).encode(), mode=0o644, why=choice.eni.name))
    numbers = {choice.number for choice in choices}
    stale = sorted(file.path for file in sources.confs if file.number not in numbers)
    steps.extend(RemoveFile(path=path, why="belongs to no ENI of this setup") for path in stale)
    return Group(name="configuration files", steps=tuple(steps))
