"""systemd-networkd alone: /etc/systemd/network/05-harp-<interface>.network.

Of all files that match an interface networkd takes the first; ours come before the usual 10- and 50-.
"""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.change.steps import AnyStep, RemoveFile, WriteFile
from harpctl.host.door import Host
from harpctl.network.model import EniPlan

PATH = "/etc/systemd/network/05-harp-{name}.network"
HEAD = "# Written by harpctl setup; harpctl rollback takes it away.\n"


def _section(title: str, **pairs: str | int | None) -> str:
    lines = [f"{key}={value}" for key, value in pairs.items() if value not in {None, ""}]
    return "\n".join([f"[{title}]", *lines]) + "\n"


def unit(eni: EniPlan) -> str:
    """Give the .network file of an ENI."""
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
    """Plan the .network files, and the end of those that nobody asks for any more."""
    wanted = {PATH.format(name=eni.name): unit(eni) for eni in enis}
    steps: list[AnyStep] = [
        WriteFile(path=path, data=text.encode(), mode=0o644, why="address and routes of the ENI at boot")
        for path, text in wanted.items()
    ]
    stale = [path for path in host.glob(PATH.format(name="*")) if path not in wanted]
    return steps + [RemoveFile(path=path, why="this ENI is not used any more") for path in stale]
