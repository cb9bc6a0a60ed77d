# SPDX-License-Identifier: Apache-2.0
"""The whole setup as one plan. Errors in the options or the host are raised here, before any change."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec

from harpctl.change.steps import Group, Plan, SetControl
from harpctl.confs.table import BOUNDS, KEYS
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Eni, Facts
from harpctl.facts.sources import RECORD, Sources
from harpctl.kargs.cmdline import HugepageArgs, reserves_exactly
from harpctl.kargs.plan import lacking_entries, plan_kernel_args
from harpctl.network.big_tcp import plan_big_tcp
from harpctl.network.model import EniPlan, Interfaces, decode_record
from harpctl.network.plan import NAME as NETWORK
from harpctl.network.plan import plan_network, plan_record, reason_to_refuse
from harpctl.setup.choose import Choice, gpu_count, make_choices
from harpctl.setup.confs import confs_by_interface, plan_confs
from harpctl.setup.mount import plan_mount
from harpctl.setup.options import AUTO, FIT, SetupOptions, with_names
from harpctl.setup.page_demand import pages_used
from harpctl.setup.pages import (
    check_memory,
    check_page_size,
    check_settings,
    page_count,
    pages_now,
    plan_now,
    replaced_args,
    wanted_args,
)
from harpctl.setup.unit import plan_tool, plan_units, reason_against
from harpctl.units import GIB, size_name

CHANNELS_MAX = 1024
DRIVER_DEFAULT = "auto"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a setup for one sources, and what it was made for."""

    plan: Plan
    choices: tuple[Choice, ...]
    wanted: HugepageArgs
    facts: Facts
    sources: Sources


def _check_system(facts: Facts, options: SetupOptions) -> None:
    system = facts.system
    if not system.family and options.kernel_args:
        raise HarpError(
            f"Unknown distribution: {system.name or system.id or 'no os-release'}."
            " HARP knows the boot loaders of the Debian and the Red Hat families.",
            "Add the kernel arguments by hand, and leave them out here: --no-kernel-args",
            ExitCode.MISSING,
        )
    if system.container and not (options.force or options.dry_run):
        raise HarpError(
            f"This is a container ({system.container}): kernel arguments and ENIs are the host's.",
            "Run it on the sources, and mount what it made into the container: docs/how-to/operations.md.",
            ExitCode.REFUSED,
        )


def _check_ranges(enis: Sequence[Eni], options: SetupOptions) -> None:
    """Raise where an ENI does not take the MTU or the channels that are asked for."""
    for eni in enis:
        mtu_max, channels_max = eni.mtu_max or KEYS["mtu"].max, eni.queues_max or CHANNELS_MAX
        carried = "Use the MTU that the network between the hosts carries."
        for option, value, low, most, hint in (
            ("--mtu", options.mtu, BOUNDS.mtu_min, mtu_max, carried),
            ("--channels", options.channels, 1, channels_max, f"For example: --channels {channels_max}"),
        ):
            if value is not None and not low <= value <= most:
                message = f"{option} {value}: {eni.name} takes {low} to {most}."
                raise HarpError(message, hint, ExitCode.USAGE)


def with_record(choice: Choice, earlier: EniPlan | None, options: SetupOptions) -> Choice:
    """Keep the address that an earlier setup chose, unless the ENI has only others now.

    Beside it there may be one of a manager, until the next boot.
    """
    eni, given = choice.eni, options.overrides
    if not earlier or not earlier.address or (eni.addresses and earlier.address not in eni.addresses):
        return choice
    return msgspec.structs.replace(
        choice,
        address=given.addresses.get(eni.name) or earlier.address,
        gateway=given.gateways.get(eni.name) or earlier.gateway or choice.gateway,
    )


def eni_plan(choice: Choice, options: SetupOptions, earlier: EniPlan | None) -> EniPlan:
    """Return what a chosen ENI needs. Raises where it has no address.

    The default-route interface, and that of the ssh session, keeps what its manager gives it.
    """
    eni = choice.eni
    is_managed = bool(reason_to_refuse(eni))
    if not choice.address and not is_managed:
        raise HarpError(
            f"{eni.name} has no address, and the cloud's metadata names none.",
            f"Give it one: --address {eni.name}=10.0.0.5/24; or leave the network as it is: --no-network",
            ExitCode.MISSING,
        )
    mtu = options.mtu or (earlier.mtu if earlier else None)
    return EniPlan(
        number=choice.number,
        name=eni.name,
        mac=eni.mac,
        address="" if is_managed else choice.address,
        gateway="" if is_managed else choice.gateway,
        mtu=mtu or (None if is_managed else eni.mtu or None),
        queues=options.channels or (earlier.queues if earlier else None),
    )


def with_pages(options: SetupOptions, earlier: Interfaces) -> SetupOptions:
    """Return the options with the pages that an earlier setup chose, where they name none.

    Where they name another size of pages alone, as many are chosen as hold the same memory.
    """
    size_then = earlier.page_size or GIB
    size, count = options.page_size or size_then, options.hugepages
    if count is None:
        count = AUTO if earlier.hugepages is None else -(-earlier.hugepages * size_then // size)
    return msgspec.structs.replace(options, page_size=size, hugepages=count)


def interfaces_of(
    choices: Sequence[Choice], options: SetupOptions, earlier: Interfaces, big_tcp: bool | None
) -> Interfaces:
    """Return the record of the interfaces; what no option sets stays as an earlier setup chose."""
    enis = earlier.enis
    if options.network:
        enis = tuple(eni_plan(choice, options, earlier.find_eni(choice.eni.name)) for choice in choices)
    return Interfaces(
        enis=enis,
        big_tcp=big_tcp,
        hugepages=None if options.hugepages == AUTO else options.hugepages,
        page_size=None if options.page_size == GIB else options.page_size,
    )


def chosen_big_tcp(options: SetupOptions, earlier: Interfaces) -> bool | None:
    """Return whether BIG TCP is set at boot: as requested, else as an earlier setup chose.

    Without either it is, where setup may change the network; else nothing is chosen: None.
    """
    chosen = earlier.big_tcp if options.big_tcp is None else options.big_tcp
    return (True if options.network else None) if chosen is None else chosen


def _check_boot(options: SetupOptions, reason: str) -> None:
    """Raise where nothing would set the ENIs up at the next boot."""
    if options.network and reason:
        raise HarpError(
            f"Nothing would set the ENIs up at the next boot: {reason}.",
            "Install harpctl where it is set up, or leave the network as it is: --no-network",
            ExitCode.REFUSED,
        )
    if not options.network and options.channels is not None:
        raise HarpError(
            "--channels changes the network, which --no-network leaves as it is.",
            "Leave one of both out.",
            ExitCode.USAGE,
        )


def _setup_notes(facts: Facts, choices: Sequence[Choice], options: SetupOptions) -> list[str]:
    notes = []
    if facts.system.container and not options.force:
        where = f"This is a container ({facts.system.container}), where setup itself is refused"
        notes.append(f"{where}: kernel arguments (not shown) and ENIs are the host's.")
    gpus = len(facts.gpus) if options.overrides.gpus is None else options.overrides.gpus
    if gpus and len(choices) != gpus:
        notes.append(f"{len(choices)} ENIs for {gpus} GPUs: they share; HARP expects one ENI per GPU.")
    if without := [choice.eni.name for choice in choices if not choice.cores]:
        why = "No core to spare" if facts.cpus else "The processors are not known here, so no core"
        notes.append(f"{why} for {', '.join(without)}: their engines run inside NCCL's threads.")
    speeds = (options.speed_mbps, options.cloud_mbps)
    if names := [one.eni.name for one in choices if not any((*speeds, one.eni.speed_mbps))]:
        note = f"The speed of {', '.join(names)} is not known, and NCCL is told 10000 Mbit/s"
        notes.append(f"{note}; --speed MBPS sets it.")
    for choice in choices if options.network else ():
        others = [address for address in choice.eni.addresses if address != choice.address]
        if others and not reason_to_refuse(choice.eni):
            note = f"{choice.eni.name} has {choice.address} alone from the next boot on"
            notes.append(f"{note}, without {', '.join(others)}.")
    alone = [choice for choice in choices if options.network and not choice.gateway and _is_alone(choice)]
    for choice in alone:
        note = f"{choice.eni.name} has {choice.address} and no gateway known: it reaches no other host"
        notes.append(f"{note}; --gateway {choice.eni.name}=ADDRESS adds one.")
    if names := [one.eni.name for one in choices if options.network and not one.gateway and one not in alone]:
        note = f"No gateway known for {', '.join(names)}: only hosts of the same subnet are reached"
        notes.append(f"{note}; --gateway {names[0]}=ADDRESS adds one.")
    return notes


def _is_alone(choice: Choice) -> bool:
    """Return whether an ENI's subnet has its own address only, as on some clouds."""
    return bool(choice.address) and ipaddress.ip_interface(choice.address).network.num_addresses == 1


def _big_tcp(
    facts: Facts, sources: Sources, choices: Sequence[Choice], options: SetupOptions, chosen: bool | None
) -> tuple[Group, list[str]]:
    """Plan BIG TCP of the chosen ENIs; the boot unit sets it again."""
    may_set = sources.runs_commands and not facts.system.container and (options.network or options.big_tcp)
    if not (may_set and chosen):
        return plan_big_tcp([])
    confs = confs_by_interface(facts, sources)
    drivers = {name: conf.driver or DRIVER_DEFAULT for name, conf in confs.items()}
    return plan_big_tcp((choice.eni, drivers.get(choice.eni.name, DRIVER_DEFAULT)) for choice in choices)


def reboot_reason(facts: Facts, sources: Sources, wanted: HugepageArgs, options: SetupOptions) -> str:
    """Return why a reboot is needed for all that was requested to hold; "" when none is."""
    have = pages_now(facts, wanted.page_size)
    if have >= wanted.count:
        return ""
    if not options.kernel_args:
        return ""
    pages = f"{wanted.count} hugepages of {size_name(wanted.page_size)}"
    if not sources.is_real:
        return f"its next boot brings {pages}"
    if reserves_exactly(facts.boot.cmdline, wanted):
        return ""  # booted with them, and the kernel could not reserve them: find_unmet reports it
    return f"a reboot brings {pages}; {have} are there now"


def _count_pages(facts: Facts, sources: Sources, choices: Sequence[Choice], options: SetupOptions) -> int:
    if options.hugepages == FIT:
        return pages_used(
            choices, confs_by_interface(facts, sources), gpu_count(facts, options), options.page_size
        )
    return page_count(gpu_count(facts, options), options)


def make_setup(facts: Facts, sources: Sources, options: SetupOptions) -> Setup:
    """Plan all that was requested. Raises HarpError for what can't be."""
    _check_system(facts, options)
    earlier = decode_record(sources.read_bytes(RECORD)).with_names(facts.name_of)
    options = with_pages(with_names(options, facts), earlier)
    choices = [with_record(one, earlier.find_eni(one.eni.name), options) for one in make_choices(facts, options)]
    enis = [choice.eni for choice in choices]
    count = _count_pages(facts, sources, choices, options)
    wanted = wanted_args(facts, options, count)
    if options.now and not sources.runs_commands:
        raise HarpError(
            "--now asks a running kernel for pages, and a directory tree has none.",
            "Leave it out: the kernel arguments bring the pages at the first boot.",
            ExitCode.USAGE,
        )
    if options.kernel_args or options.now:
        check_page_size(facts, options)
        check_memory(facts, options, count)
    if options.kernel_args:
        check_settings(facts, wanted)
    _check_ranges(enis, options)
    groups: list[Group] = []
    if options.kernel_args and not (options.dry_run and facts.system.container):
        groups.append(plan_kernel_args(facts, sources, wanted))
    if options.now:
        groups.append(plan_now(facts, options, count))
    groups.append(plan_mount(facts, sources, options))
    reason = reason_against(facts, sources, options)
    _check_boot(options, reason)
    chosen = chosen_big_tcp(options, earlier)
    interfaces = interfaces_of(choices, options, earlier, chosen)
    if options.network:
        groups.extend(plan_network(facts, sources, interfaces))
    else:
        groups.append(Group(name=NETWORK, steps=(plan_record(interfaces),)))
    big_tcp, without = _big_tcp(facts, sources, choices, options, chosen)
    groups += [big_tcp, plan_confs(facts, sources, choices, options), plan_tool(options)]
    notes = _setup_notes(facts, choices, options) + without
    if options.kernel_args:
        notes += replaced_args(facts, wanted)
    if not reason:
        groups.append(plan_units(sources, options))
    elif options.unit:
        notes.append(f"No boot units: {reason}.")
    plan = Plan(groups=tuple(groups), notes=tuple(notes), reboot=reboot_reason(facts, sources, wanted, options))
    return Setup(plan=plan, choices=tuple(choices), wanted=wanted, facts=facts, sources=sources)


def find_unmet(options: SetupOptions, setup: Setup) -> list[str]:
    """Return what was requested and does not hold, by the plan from fresh facts: empty means success.

    Pages that the kernel arguments bring at the next boot count as held.
    """
    wanted, facts, missing = setup.wanted, setup.facts, list[str]()
    if options.kernel_args:
        missing = [
            f"boot entry '{entry.title}' ({entry.source}) lacks the kernel arguments"
            for entry in lacking_entries(facts.boot, wanted)
        ]
    have = pages_now(facts, wanted.page_size)
    asks = reserves_exactly(facts.boot.cmdline, wanted) if options.kernel_args else options.now
    if have < wanted.count and setup.sources.is_real and asks:
        pages = f"{have} of {wanted.count} hugepages of {size_name(wanted.page_size)}"
        missing.append(f"{pages}: the rest of the memory is in use or fragmented")
    for group in setup.plan.groups:
        left = [step for step in group.steps if not (isinstance(step, SetControl) and step.may_fall_short)]
        if left:
            missing.append(f"{group.name}: {len(left)} steps still to do")
    return missing
