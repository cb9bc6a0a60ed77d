# SPDX-License-Identifier: Apache-2.0
"""ARP and reverse path settings for several ENIs on one subnet: each answers for its own address only."""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.change.steps import AnyStep, SetControl, WriteFile
from harpctl.network.model import EniPlan
from harpctl.network.owned_files import HEAD

PATH = "/etc/sysctl.d/90-harp.conf"
SETTINGS = {
    "arp_ignore": "1",  # answer only on the interface that has the address
    "arp_announce": "2",  # ask only with an address of the interface that asks
    "rp_filter": "2",  # loose: a reply may come by another interface than the main table's
}


def _key(name: str, setting: str) -> str:
    """Return the sysctl's name; with slashes where the interface's own name holds dots (eth1.100)."""
    if "." in name:
        return f"net/ipv4/conf/{name}/{setting}"
    return f"net.ipv4.conf.{name}.{setting}"


def files(enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the drop-in for the next boot; none where all ENIs have IPv6 addresses."""
    lines = [
        f"{_key(eni.name, setting)} = {value}\n"
        for eni in enis
        if eni.version == 4
        for setting, value in SETTINGS.items()
    ]
    if not lines:
        return []
    data = (HEAD + "".join(lines)).encode()
    return [WriteFile(path=PATH, data=data, mode=0o644, why="each ENI answers ARP for its own address")]


def now(enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the settings for the running kernel."""
    return [
        SetControl(path=f"/proc/sys/net/ipv4/conf/{eni.name}/{setting}", value=value)
        for eni in enis
        if eni.version == 4
        for setting, value in SETTINGS.items()
    ]
