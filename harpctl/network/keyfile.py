# SPDX-License-Identifier: Apache-2.0
"""NetworkManager: one keyfile per ENI in /etc/NetworkManager/system-connections.

`route-table` puts all routes of the connection, that to its own subnet too, into the ENI's table. A
connection that is there already, such as the one made by itself for a new wire, stays and has less priority.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from harpctl.change.steps import AnyStep
from harpctl.host.host import Host
from harpctl.network.model import EniPlan
from harpctl.network.owned_files import HEAD, plan_files

PATH = "/etc/NetworkManager/system-connections/harp-{name}.nmconnection"
MODE = 0o600  # NetworkManager ignores files that others can read
PRIORITY = 999  # the highest that there is
NAMESPACE = uuid.UUID("f4c1b2c0-5d0e-4f57-9a55-6f2f5b7d7700")


def identity(eni: EniPlan) -> str:
    """Return the connection's UUID: the same for the same interface, run after run."""
    return str(uuid.uuid5(NAMESPACE, eni.name))


def keyfile(eni: EniPlan) -> str:
    """Return the keyfile of an ENI."""
    rule_from = f"{eni.host}/{32 if eni.version == 4 else 128}"
    ours = [
        "method=manual",
        f"address1={eni.address}",
        "never-default=true",
        "may-fail=false",
        f"route-table={eni.table}",
    ]
    if eni.gateway:
        ours += (
            [f"route1={eni.everything},{eni.gateway}", "route1_options=onlink=true"]
            if eni.version == 4
            else [f"route1={eni.everything},{eni.gateway}"]
        )
    ours.append(f"routing-rule1=priority {eni.priority} from {rule_from} table {eni.table}")
    families = {4: ["method=disabled"], 6: ["method=ignore"]} | {eni.version: ours}
    ethernet = [f"mac-address={eni.mac.upper()}"] if eni.mac else []
    ethernet += [f"mtu={eni.mtu}"] if eni.mtu is not None else []
    sections = {
        "connection": [
            f"id=harp-{eni.name}",
            f"uuid={identity(eni)}",
            "type=ethernet",
            f"interface-name={eni.name}",
            f"autoconnect-priority={PRIORITY}",
        ],
        "ethernet": ethernet,
        "ipv4": families[4],
        "ipv6": families[6],
    }
    return HEAD + "\n".join(
        "\n".join([f"[{title}]", *lines]) + "\n" for title, lines in sections.items() if lines
    )


def files(host: Host, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the keyfiles, and the removal of those no longer needed."""
    wanted = {PATH.format(name=eni.name): keyfile(eni) for eni in enis}
    return plan_files(wanted, host.glob(PATH.format(name="*")), mode=MODE)
