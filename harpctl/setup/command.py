# SPDX-License-Identifier: Apache-2.0
"""`harpctl setup`: plan, show, ask, apply, verify."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click
import msgspec

from harpctl.change.apply import apply_plan
from harpctl.change.diff import render_diff
from harpctl.change.os_errors import require_root
from harpctl.change.rollback import recover_interrupted
from harpctl.change.steps import Plan, drop_held_steps
from harpctl.command_line import command, dry_run_option, flag, json_option, option, root_option, yes_option
from harpctl.confs.conf import conf_path
from harpctl.console import OUT, ConsoleProgress, NoProgress, Progress, ask_for_yes, print_json, print_lines
from harpctl.errors import EXIT_CHANGES, ExitCode, HarpError
from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Facts, Overrides
from harpctl.facts.sources import collect_sources
from harpctl.host.host import Host, open_host
from harpctl.network.guard import Guard
from harpctl.network.metadata import look_up_addresses, sources_of
from harpctl.network.speeds import known_speed
from harpctl.setup.choose import choose_enis
from harpctl.setup.options import (
    PACKAGED_PROGRAM,
    PROGRAM,
    SetupOptions,
    parse_bytes,
    parse_hugepages,
    parse_list,
    parse_page_size,
    parse_pairs,
    read_cidr,
    read_ip,
    read_mac,
    with_names,
)
from harpctl.setup.plan import Setup, find_unmet, make_setup

DIST_FOLDER = "HARPCTL_HOME"  # set by the tool's launcher: the folder that it runs from
SUCCESS = "Set up HARP successfully"


class SetupResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `setup --json`."""

    ok: bool
    message: str
    changed: bool  # with --dry-run: would change something
    transaction: str = ""
    hugepages: int = 0
    page_size: int = 0
    enis: tuple[str, ...] = ()
    conf_files: tuple[str, ...] = ()
    reboot: str = ""  # why a reboot is needed for all of it to hold; "" when none is
    notes: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    plan: str = ""  # what --dry-run shows: the diff and the commands


def _own_program(host: Host) -> str:
    """Return how the boot units start harpctl: the one that runs now; in an image the one that it holds."""
    if not host.is_real:
        return next((path for path in (PROGRAM, PACKAGED_PROGRAM) if host.is_file(path)), PROGRAM)
    name = os.environ.get("HARPCTL_PROGRAM") or sys.argv[0]
    found = shutil.which(name) or name
    return str(Path(found).absolute()) if Path(found).name.startswith("harp") else PROGRAM


def _with_metadata(host: Host, facts: Facts, overrides: Overrides, enis: tuple[str, ...]) -> Overrides:
    """Ask the cloud for the addresses of ENIs that have none in this guest."""
    bare = [
        eni
        for eni in facts.enis
        if eni.mac
        and not eni.kind
        and not eni.addresses
        and not eni.is_default_route
        and (not enis or eni.name in enis)
    ]
    if not bare:
        return overrides
    found = look_up_addresses([eni.mac for eni in bare], sources_of(host))
    addresses = {eni.name: found[eni.mac].cidr for eni in bare if eni.mac in found}
    gateways = {eni.name: found[eni.mac].gateway for eni in bare if eni.mac in found and found[eni.mac].gateway}
    return msgspec.structs.replace(
        overrides, addresses={**addresses, **overrides.addresses}, gateways={**gateways, **overrides.gateways}
    )


def _with_speed(host: Host, facts: Facts, options: SetupOptions) -> SetupOptions:
    """Ask the cloud how fast the ENIs are, where neither the operator nor a driver states it."""
    if options.speed_mbps or not host.is_real:
        return options
    enis = choose_enis(facts, options)
    if any(eni.speed_mbps for eni in enis):
        return options
    return msgspec.structs.replace(options, cloud_mbps=known_speed(host, len(enis)) or None)


def gather_facts(host: Host, options: SetupOptions) -> Facts:
    """Gather the facts, without the addresses of the options: the host does not have them yet."""
    return collect_facts(host, msgspec.structs.replace(options.overrides, addresses={}, gateways={}))


def plan_setup(host: Host, options: SetupOptions, facts: Facts | None = None) -> Setup:
    """Plan what was requested and does not hold yet. Raises HarpError with nothing changed."""
    facts = facts or gather_facts(host, options)
    setup = make_setup(facts, collect_sources(host, facts.enis, program=options.program), options)
    return msgspec.structs.replace(setup, plan=drop_held_steps(setup.plan, host))


def _make_result(setup: Setup, **fields: object) -> SetupResult:
    return msgspec.convert(
        {
            "hugepages": setup.wanted.count,
            "page_size": setup.wanted.page_size,
            "enis": [choice.eni.name for choice in setup.choices],
            "conf_files": [conf_path(choice.number) for choice in setup.choices],
            "reboot": setup.plan.reboot,
            "notes": list(setup.plan.notes),
            **fields,
        },
        SetupResult,
    )


def run_setup(host: Host, options: SetupOptions, progress: Progress, *, dry_run: bool, ask: bool) -> SetupResult:
    """Do one setup of a host. Raises with nothing changed, or returns in the result what does not hold."""
    if not dry_run:
        require_root(host)
        recover_interrupted(host, progress=progress)
    with progress.working("Looking at the host"):
        facts = gather_facts(host, options)
        options = with_names(options, facts)
        if host.is_real and options.network:
            overrides = _with_metadata(host, facts, options.overrides, options.enis)
            options = msgspec.structs.replace(options, overrides=overrides)
        options = _with_speed(host, facts, options)
    setup = plan_setup(host, options, facts)
    if dry_run:
        return _make_result(
            setup, ok=True, message="", changed=not setup.plan.is_empty, plan=render_diff(setup.plan, host)
        )
    if ask and not setup.plan.is_empty:
        notes = "".join(f"Note: {note}\n" for note in setup.plan.notes)
        print_lines(render_diff(setup.plan, host) + notes)
        ask_for_yes("Apply this?")
        if plan_setup(host, options).plan != setup.plan:
            raise HarpError(
                "The host has changed since the plan was shown; nothing was changed.",
                "Run it again.",
                ExitCode.REFUSED,
            )
    transaction = "" if setup.plan.is_empty else _apply_plan(setup.plan, host, progress)
    with progress.working("Checking what holds now"):
        after = plan_setup(host, options)
        left = find_unmet(options, after)
    return _make_result(
        after,
        notes=list(dict.fromkeys([*setup.plan.notes, *after.plan.notes])),
        ok=not left,
        message="Setting up HARP is not complete" if left else SUCCESS,
        changed=not setup.plan.is_empty,
        transaction=transaction,
        unmet=left,
    )


def _apply_plan(plan: Plan, host: Host, progress: Progress) -> str:
    guard = Guard() if any(group.guarded for group in plan.groups) else None
    return apply_plan(plan, host, what="setup", progress=progress, guard=guard)


def _show_result(result: SetupResult, setup_host: Host, *, dry_run: bool) -> None:
    for note in result.notes:
        OUT.print(f"Note: {note}", markup=False)
    if dry_run:
        print_lines(f"{result.plan.rstrip() or 'Nothing to do: all of it holds already.'}\n")
        return
    for line in result.unmet:
        OUT.print(f"Not met: {line}", markup=False)
    OUT.print(result.message, markup=False)
    if result.ok and result.reboot:
        when = "Reboot this host when convenient" if setup_host.is_real else "It takes effect when it boots"
        OUT.print(f"{when}: {result.reboot}.", markup=False)


@command()
@option("--gpus", type=int, help="Number of GPUs; else counted on the PCI bus.")
@option(
    "--hugepages",
    metavar="N|fit|auto",
    default="",
    help="Number of hugepages; fit: what a rank per GPU uses; auto: GPUs x 5 + 10 GiB;"
    " else as before, at first auto.",
)
@option(
    "--page-size",
    metavar="1G|2M",
    default="",
    help="Size of a hugepage; else as before, at first 1G.",
)
@option("--enis", metavar="A,B", default="", help="Use these interfaces; else one secondary ENI per GPU.")
@option(
    "--address",
    metavar="ENI=CIDR",
    multiple=True,
    help="Address of an ENI, such as eth1=10.0.1.5/24; repeatable.",
)
@option("--gateway", metavar="ENI=IP", multiple=True, help="Next hop of an ENI's subnet; repeatable.")
@option("--mac", metavar="ENI=MAC", multiple=True, help="MAC of an ENI that the tree lacks; repeatable.")
@option("--memory", metavar="SIZE", default="", help="Memory of the host, such as 948G, for a tree without /proc.")
@option("--mtu", type=int, help="MTU of the ENIs; else unchanged.")
@option(
    "--speed",
    metavar="MBPS",
    type=click.IntRange(1, 10_000_000),
    help="Speed of each ENI; else the driver's, else that of a known EC2 instance.",
)
@option("--channels", type=int, help="Channels of each ENI, in each direction; else unchanged.")
@option(
    "--big-tcp/--no-big-tcp",
    default=None,
    help="Let TCP use packets of 128 KiB on the ENIs; else as before, at first on.",
)
@flag("--now", help="Also reserve hugepages at once, as many as possible.")
@flag("--no-kernel-args", help="Do not change the boot loader.")
@flag("--no-network", help="Do not change the network.")
@flag("--no-unit", help="Install no boot units; with --no-network.")
@flag("--force", help="Also use ENIs with the default route or this session, as they are; also in a container.")
@dry_run_option
@flag("--exit-code", help="With --dry-run: exit with 2 when there is something to do.")
@yes_option
@root_option
@json_option
def setup(
    *,
    gpus: int | None,
    hugepages: str,
    page_size: str,
    enis: str,
    address: tuple[str, ...],
    gateway: tuple[str, ...],
    mac: tuple[str, ...],
    memory: str,
    mtu: int | None,
    speed: int | None,
    channels: int | None,
    big_tcp: bool | None,
    now: bool,
    no_kernel_args: bool,
    no_network: bool,
    no_unit: bool,
    force: bool,
    dry_run: bool,
    exit_code: bool,
    yes: bool,
    root: Path | None,
    as_json: bool,
) -> None:
    """Prepare this host for HARP: hugepages, ENIs, conf files, boot units; every change can be undone.

    Prints `Set up HARP successfully` exactly when all of it holds, or needs only the reboot that it names. It
    never reboots by itself. `harpctl rollback` undoes it.
    """
    host = open_host(root)
    options = SetupOptions(
        overrides=Overrides(
            gpus=gpus,
            memory=parse_bytes(memory) if memory else None,
            enis=() if host.is_dir("/sys/class/net") else parse_list(enis),
            addresses=parse_pairs("--address", address, "10.0.1.5/24", read_cidr),
            gateways=parse_pairs("--gateway", gateway, "10.0.1.1", read_ip),
            macs=parse_pairs("--mac", mac, "52:54:00:12:34:56", read_mac),
        ),
        hugepages=parse_hugepages(hugepages),
        page_size=parse_page_size(page_size),
        enis=parse_list(enis),
        mtu=mtu,
        channels=channels,
        big_tcp=big_tcp,
        speed_mbps=speed,
        force=force,
        now=now,
        kernel_args=not no_kernel_args,
        network=not no_network,
        unit=not no_unit,
        program=_own_program(host),
        tool_folder=os.environ.get(DIST_FOLDER, ""),
        dry_run=dry_run,
    )
    progress: Progress = NoProgress() if as_json else ConsoleProgress()
    ask = not yes and not dry_run and not as_json and sys.stdin.isatty()
    result = run_setup(host, options, progress, dry_run=dry_run, ask=ask)
    if as_json:
        print_json(result)
    else:
        _show_result(result, host, dry_run=dry_run)
    if dry_run and exit_code and result.changed:
        raise click.exceptions.Exit(EXIT_CHANGES)
    if not result.ok:
        raise click.exceptions.Exit(int(ExitCode.FAILED))
