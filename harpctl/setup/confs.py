"""The ztcp<N>.conf files of a choice: what the host dictates is written, what an operator tuned is kept."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec

from harpctl.change.steps import AnyStep, Group, RemoveFile, WriteFile
from harpctl.confs.conf import Conf, conf_number, conf_path, render
from harpctl.confs.files import find_confs, read_conf
from harpctl.facts.model import GIB
from harpctl.host.door import Host
from harpctl.setup.choose import Choice
from harpctl.setup.wish import Wish

TUNABLE = ("mtu", "queues", "mode", "bytes", "driver", "ports", "paths", "peer_timeout", "congestion")
FALLBACKS = ("speed_mbps",)  # what the host says goes first


def conf_of(choice: Choice, wish: Wish) -> Conf:
    """Give what the host dictates: the ENI's identity and place, the pages, the cores and the GPU."""
    eni = choice.eni
    return Conf(
        interface=eni.name,
        mac=eni.mac or None,
        address=str(ipaddress.ip_interface(choice.address).ip) if choice.address else None,
        gateway=choice.gateway or None,
        mtu=wish.mtu,
        pci=eni.pci or None,
        numa=eni.node if eni.node >= 0 else None,
        speed_mbps=eni.speed_mbps or None,
        cores=choice.cores or None,
        gpu=choice.gpu.index if choice.gpu else None,
        page_size="1G" if wish.page_size == GIB else "2M",
    )


def _merged(wanted: Conf, existing: Conf) -> Conf:
    """Lay what an operator tuned in the file of the same interface over what the host dictates."""
    kept = {name: getattr(existing, name) for name in TUNABLE if getattr(existing, name) is not None}
    if wanted.mtu is not None:
        kept.pop("mtu", None)
    for name in FALLBACKS:
        if getattr(wanted, name) is None:
            kept[name] = getattr(existing, name)
    return msgspec.structs.replace(wanted, **kept)


def plan_confs(host: Host, choices: Sequence[Choice], wish: Wish) -> Group:
    """Plan one file per ENI, and no others. A file that says the same already stays as it is."""
    steps: list[AnyStep] = []
    for choice in choices:
        wanted, existing = conf_of(choice, wish), read_conf(host, conf_path(choice.number)).conf
        if existing is not None and existing.interface == wanted.interface:
            wanted = _merged(wanted, existing)
        if wanted != existing:
            path = conf_path(choice.number)
            steps.append(WriteFile(path=path, data=render(wanted).encode(), mode=0o644, why=choice.eni.name))
    numbers = {choice.number for choice in choices}
    stale = (path for path in find_confs(host) if _number(path) not in numbers)
    steps.extend(RemoveFile(path=path, why="belongs to no ENI of this setup") for path in stale)
    return Group(name="configuration files", steps=tuple(steps))


def _number(path: str) -> int | None:
    return conf_number(path.rpartition("/")[2])
