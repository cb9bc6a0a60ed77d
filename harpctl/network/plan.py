# SPDX-License-Identifier: Apache-2.0
"""The plan for the ENIs: their record, managers that leave them alone, and what the running kernel lacks.

All is one group: where the commands cut the host off, the guard undoes the files as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.change.steps import Group, RemoveFile, WriteFile
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Eni, Facts
from harpctl.facts.sources import RECORD, Sources
from harpctl.network import runtime
from harpctl.network.managers import plan_agreement
from harpctl.network.model import EniPlan, Interfaces, check_plan, decode_record, encode_record

NAME = "network of the ENIs"


def reason_to_refuse(eni: Eni) -> str:
    """Return why an ENI is not to be touched unasked, as what follows its name; "" when it may be."""
    if eni.carries_ssh:
        return "carries the ssh session that runs this command"
    return "carries the default route" if eni.is_default_route else ""


def refuse_primary(eni: Eni) -> None:
    """Raise where setting the ENI up could cut the host off."""
    if reason := reason_to_refuse(eni):
        raise HarpError(
            f"{eni.name} {reason}: setting it up could cut this host off.",
            "Choose a secondary ENI, or add --force: its address and routes then stay as they are.",
            ExitCode.REFUSED,
        )


def _check_duplicates(enis: Sequence[EniPlan]) -> None:
    owners: dict[str, str] = {}
    for eni in enis:
        if eni.address and (other := owners.get(eni.host)):
            raise HarpError(
                f"{other} and {eni.name} would both have the address {eni.host}.",
                "Set each ENI's address as the cloud assigned it: --address NAME=ADDRESS/PREFIX",
                ExitCode.USAGE,
            )
        if eni.address:
            owners[eni.host] = eni.name


def plan_record(wanted: Interfaces) -> WriteFile | RemoveFile:
    """Plan the record; none where it would say nothing."""
    if wanted == Interfaces():
        return RemoveFile(path=RECORD, why="no ENI is HARP's any more")
    return WriteFile(path=RECORD, data=encode_record(wanted), mode=0o644, why="what each ENI has at every boot")


def plan_network(facts: Facts, sources: Sources, wanted: Interfaces) -> list[Group]:
    """Plan the network of the given ENIs. Raises HarpError with the remedy for what can't or may not be.

    An ENI of the default route, or with the ssh session, must not have an address here: its manager's stays.
    """
    for eni in wanted.enis:
        check_plan(eni)
        if eni.address and (found := facts.find_eni(eni.name)) is not None:
            refuse_primary(found)
    _check_duplicates(wanted.enis)
    gone = [
        eni.name for eni in decode_record(sources.read_bytes(RECORD)).enis if wanted.find_eni(eni.name) is None
    ]
    steps = [plan_record(wanted), *plan_agreement(facts, sources, wanted.enis, gone)]
    if not sources.runs_commands:
        return [Group(name=NAME, steps=tuple(steps))]
    if "ip" not in sources.programs:
        raise HarpError(
            "The program `ip` is missing, so the ENIs can't be set up.",
            "Install the package iproute2 (Debian, Ubuntu) or iproute (others).",
            ExitCode.MISSING,
        )
    changes = runtime.plan_state(facts, sources, wanted.enis)
    return [Group(name=NAME, steps=(*steps, *changes), guarded=bool(changes))]
