# SPDX-License-Identifier: Apache-2.0
"""How a running NetworkManager is made to activate our connections, with all that the keyfiles hold.

It would remove addresses set without it when its own attempt to configure the interface ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harpctl.change.steps import AnyStep, Run
from harpctl.host.host import Host
from harpctl.network import keyfile
from harpctl.network.model import EniPlan

UNMANAGED = "10 "
CONNECTED = "100 "
UP_WAIT_S = 45
UP_TIMEOUT_S = 60.0


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """How NetworkManager treats an interface."""

    is_managed: bool
    is_connected: bool = False
    connection: str = ""  # UUID of the one that is up, or coming up


def is_running(host: Host) -> bool:
    """Return whether NetworkManager answers."""
    return (host.query(["nmcli", "-t", "-f", "RUNNING", "general"]) or "").strip() == "running"


def device(host: Host, name: str) -> Device:
    """Ask how an interface is treated."""
    text = host.query(["nmcli", "-t", "-f", "GENERAL.STATE,GENERAL.CON-UUID", "device", "show", name]) or ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    state = fields.get("GENERAL.STATE", UNMANAGED)
    uuid = fields.get("GENERAL.CON-UUID", "").strip("-")
    return Device(
        is_managed=not state.startswith(UNMANAGED),
        is_connected=state.startswith(CONNECTED),
        connection=uuid,
    )


def connection(eni: EniPlan, *, netplan: bool) -> tuple[str, str]:
    """Return how nmcli names the ENI's connection: ours, or the one that netplan writes."""
    return ("id", f"netplan-{eni.name}") if netplan else ("uuid", keyfile.identity(eni))


def _up(name: str, selector: tuple[str, str], wait_s: int = UP_WAIT_S) -> tuple[str, ...]:
    return ("nmcli", "--wait", str(wait_s), "connection", "up", *selector, "ifname", name)


class Activation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps before and after the changed files, and the command that activates each managed ENI."""

    before: tuple[AnyStep, ...] = ()
    after: tuple[AnyStep, ...] = ()
    ups: dict[str, Run] = {}


def plan_activation(host: Host, enis: Sequence[EniPlan], *, netplan: bool) -> Activation:
    """Ask a running NetworkManager how it treats the ENIs, and plan their activation.

    An undo ends with the files read again, and with the connections up that were up before.
    """
    if not is_running(host):
        return Activation()
    before: list[AnyStep] = []
    ups = {}
    for eni in enis:
        treated = device(host, eni.name)
        if not treated.is_managed:
            continue
        if treated.connection:
            wait_s = UP_WAIT_S if treated.is_connected else 0  # it was not connected before: do not wait
            undo = _up(eni.name, ("uuid", treated.connection), wait_s)
            before.append(Run(undo=undo, timeout_s=UP_TIMEOUT_S, why=f"{eni.name} as it was"))
        argv = _up(eni.name, connection(eni, netplan=netplan))
        why = f"NetworkManager sets {eni.name} up"
        ups[eni.name] = Run(argv=argv, always=True, timeout_s=UP_TIMEOUT_S, why=why)
    reload = ("nmcli", "connection", "reload")
    before.append(Run(undo=reload, why="NetworkManager follows its files"))
    return Activation(
        before=tuple(before), after=(Run(argv=reload, why="NetworkManager reads its files"),), ups=ups
    )
