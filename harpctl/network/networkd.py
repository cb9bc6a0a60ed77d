# SPDX-License-Identifier: Apache-2.0
"""systemd-networkd alone: /etc/systemd/network/05-harp-<interface>.network.

Of all files that match an interface networkd takes the first; ours come before the usual 10- and 50-.
"""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.change.steps import AnyStep
from harpctl.host.host import Host
from harpctl.network.model import EniPlan
from harpctl.network.owned_files import HEAD, plan_files

PATH = "/etc/systemd/network/05-harp-{name}.network"


def _section(title: str, **pairs: str | int | None) -> str:
    lines = [f"{key}={value}" for key, value in pairs.items() if value not in {None, ""}]
    return "\n".join([f"[{title}]", *lines]) + "\n"


def unit(eni: EniPlan) -> str:
    """Return the .network file of an ENI."""
    scope = "link" if eni.version == 4 else None
    on_link = "yes" if eni.version == 4 else None
    sections = [
        HEAD + _section("Match", Name=eni.name, MACAddress=eni.mac),
        _section("Link", MTUBytes=eni.mtu, RequiredForOnline="no"),
        _section("Network", DHCP="no", IPv6AcceptRA="no"),
        _section("Address", Address=eni.address, AddPrefixRoute="no"),
        _section("Route", Destination=eni.subnet, Scope=scope, Table=eni.table),
    ]
    if eni.gateway:
        where = {"Destination": eni.everything, "Gateway": eni.gateway}
        sections.append(_section("Route", **where, GatewayOnLink=on_link, Table=eni.table))
    sections.append(_section("RoutingPolicyRule", From=eni.host, Table=eni.table, Priority=eni.priority))
    return "\n".join(sections)


def files(host: Host, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the .network files, and the removal of those no longer needed."""
    wanted = {PATH.format(name=eni.name): unit(eni) for eni in enis}
    return plan_files(wanted, host.glob(PATH.format(name="*")))
