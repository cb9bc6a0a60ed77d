# SPDX-License-Identifier: Apache-2.0
"""The plan for the ENIs: files for the next boot, and commands so that it holds now.

Both are one group: where the commands cut the host off, the guard undoes the files as well, so that
the next boot does not do it again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from harpctl.change.steps import AnyStep, Group, Run
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Eni, Facts
from harpctl.host.host import Host
from harpctl.network import arp, ifcfg, ifupdown, keyfile, netplan, networkd, networkmanager, runtime
from harpctl.network.manager import Manager, detect
from harpctl.network.model import TABLE_COUNT, EniPlan

NAME = "network of the ENIs"


def refusal(eni: Eni) -> str:
    """Return why an ENI is not to be touched unasked, as what follows its name; "" when it may be."""
    if eni.carries_ssh:
        return "carries the ssh session that runs this command"
    return "carries the default route" if eni.is_default_route else ""


def refuse_primary(eni: Eni) -> None:
    """Raise where setting the ENI up could cut the host off."""
    if reason := refusal(eni):
        raise HarpError(
            f"{eni.name} {reason}: setting it up could cut this host off.",
            "Choose a secondary ENI, or add --force if you have another way in.",
            ExitCode.REFUSED,
        )


def _check_address(eni: EniPlan) -> None:
    try:
        version = ipaddress.ip_interface(eni.address).version
        same = not eni.gateway or ipaddress.ip_address(eni.gateway).version == version
    except ValueError as error:
        raise HarpError(
            f"{eni.name}: {error}.", f"For example: --address {eni.name}=10.0.1.5/24", ExitCode.USAGE
        ) from None
    if not same:
        raise HarpError(
            f"{eni.name}: the gateway {eni.gateway} is of another IP version than the address {eni.address}.",
            f"Give the gateway of that subnet: --gateway {eni.name}=ADDRESS",
            ExitCode.USAGE,
        )
    if not 0 <= eni.number < TABLE_COUNT:
        raise HarpError(
            f"{eni.name} would be number {eni.number}: HARP uses at most {TABLE_COUNT} ENIs.",
            "Name fewer with --enis.",
            ExitCode.USAGE,
        )


def _check_duplicates(enis: Sequence[EniPlan]) -> None:
    owners: dict[str, str] = {}
    for eni in enis:
        if other := owners.get(eni.host):
            raise HarpError(
                f"{other} and {eni.name} would both have the address {eni.host}.",
                "Set each ENI's address as the cloud assigned it: --address NAME=ADDRESS/PREFIX",
                ExitCode.USAGE,
            )
        owners[eni.host] = eni.name


def files(host: Host, manager: Manager, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the files of a manager."""
    if manager is Manager.NETWORKD:
        return networkd.files(host, enis)
    if manager is Manager.NETWORKMANAGER:
        return keyfile.files(host, enis)
    if manager is Manager.IFCFG:
        return ifcfg.files(host, enis)
    if manager is Manager.IFUPDOWN:
        return ifupdown.files(host, enis)
    return netplan.files(host, enis, networkd=manager is Manager.NETPLAN)


def _with_validation(manager: Manager, steps: list[AnyStep]) -> list[AnyStep]:
    """Have netplan read all its files; a mistake, ours or an older one, ends the setup with all undone."""
    if manager not in {Manager.NETPLAN, Manager.NETPLAN_NM}:
        return steps
    generate = ("netplan", "generate")
    return [
        Run(undo=generate, why="netplan's own output follows its files"),
        *steps,
        Run(argv=generate, why="netplan accepts the files"),
    ]


def plan_network(facts: Facts, host: Host, enis: Sequence[EniPlan], *, force: bool = False) -> list[Group]:
    """Plan the network of the given ENIs. Raises HarpError with the remedy for what can't or may not be.

    `force` allows the ENI of the default route, and the one that carries the ssh session.
    """
    if not enis:
        return []
    for eni in enis:
        _check_address(eni)
        if not force and (found := facts.eni(eni.name)) is not None:
            refuse_primary(found)
    _check_duplicates(enis)
    manager = detect(host)
    kept = files(host, manager, enis) + arp.files(enis)
    if not host.runs_commands:
        return [Group(name=NAME, steps=tuple(kept))]
    if host.which("ip") is None:
        raise HarpError(
            "The program `ip` is missing, so the ENIs can't be set up.",
            "Install the package iproute2 (Debian, Ubuntu) or iproute (others).",
            ExitCode.MISSING,
        )
    activation = networkmanager.Activation()
    if manager in {Manager.NETWORKMANAGER, Manager.NETPLAN_NM}:
        activation = networkmanager.plan_activation(host, enis, netplan=manager is Manager.NETPLAN_NM)
    changes = runtime.commands(facts, host, enis, activation.ups)
    steps = [
        *activation.before,
        *_with_validation(manager, kept),
        *activation.after,
        *arp.now(enis),
        *changes,
    ]
    return [Group(name=NAME, steps=tuple(steps), guarded=bool(changes))]
