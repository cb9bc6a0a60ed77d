# SPDX-License-Identifier: Apache-2.0
"""Netplan: /etc/netplan/90-harp.yaml, merged over what cloud-init and the installer wrote.

An ENI is named by its interface name, so that a definition that is there already is refined and no second
one competes with it. There is no `match` on purpose: with an MTU it would make netplan write a .link file
that takes the interface's name away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from harpctl.change.steps import AnyStep
from harpctl.host.host import Host
from harpctl.network.model import EniPlan
from harpctl.network.owned_files import plan_files

PATH = "/etc/netplan/90-harp.yaml"
MODE = 0o600  # as netplan requires of all its files
DROPIN = "/etc/systemd/network/10-netplan-{name}.network.d/90-harp.conf"
HEAD = "# Written by harpctl setup; harpctl rollback takes it away. Addresses of the ENIs that HARP uses.\n"


def _definition(eni: EniPlan) -> str:
    lines = [
        f"    {json.dumps(eni.name)}:",
        "      dhcp4: false",
        "      dhcp6: false",
        "      optional: true",
        f"      addresses: [{json.dumps(eni.address)}]",
    ]
    if eni.version == 6:
        lines.append("      accept-ra: false")
    if eni.mtu is not None:
        lines.append(f"      mtu: {eni.mtu}")
    lines += [
        "      routes:",
        f"        - to: {json.dumps(eni.subnet)}",
        "          scope: link",
        f"          table: {eni.table}",
    ]
    if eni.gateway:
        lines += [
            f"        - to: {json.dumps(eni.everything)}",
            f"          via: {json.dumps(eni.gateway)}",
            *(["          on-link: true"] if eni.version == 4 else []),
            f"          table: {eni.table}",
        ]
    lines += [
        "      routing-policy:",
        f"        - from: {json.dumps(eni.host)}",
        f"          table: {eni.table}",
        f"          priority: {eni.priority}",
    ]
    return "\n".join(lines) + "\n"


def document(enis: Sequence[EniPlan]) -> str:
    """Return the YAML for some ENIs; strings are quoted as JSON, which YAML contains."""
    body = "".join(_definition(eni) for eni in enis)
    return f"{HEAD}network:\n  version: 2\n  ethernets:\n{body}"


def _dropin(eni: EniPlan) -> str:
    """Keep the ENI's subnet out of the main table, which netplan has no word for.

    There it would win over the same subnet on the primary ENI, whose route from DHCP has a worse metric.
    Before version 248 systemd can't take netplan's address back, and the boot unit removes the route.
    """
    return (
        "# Written by harpctl setup, beside 90-harp.yaml: no route to the subnet in the main table.\n"
        f"[Network]\nAddress=\n\n[Address]\nAddress={eni.address}\nAddPrefixRoute=no\n"
    )


def files(host: Host, enis: Sequence[EniPlan], *, networkd: bool) -> list[AnyStep]:
    """Plan netplan's files; `networkd`: systemd-networkd is its renderer."""
    dropins = {DROPIN.format(name=eni.name): _dropin(eni) for eni in enis} if networkd else {}
    found = host.glob(DROPIN.format(name="*"))
    return [
        *plan_files({PATH: document(enis)}, (), mode=MODE),
        *plan_files(dropins, found, why="no second route to the subnet"),
    ]
