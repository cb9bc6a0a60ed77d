# SPDX-License-Identifier: Apache-2.0
"""`harpctl boot`: what harp.service runs at every boot. Sets what does not survive one, then checks the host.

These are NIC channels and BIG TCP, which distributions configure in no common place, and main routes that
some network services create again at every boot. None is journalled, because the next boot forgets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from harpctl.change.steps import Run, SetSizes
from harpctl.confs.conf import Conf
from harpctl.confs.files import read_confs
from harpctl.console import OUT, print_json
from harpctl.doctor.context import DoctorOptions, real_context
from harpctl.doctor.examine import examine
from harpctl.doctor.model import Finding, worst
from harpctl.errors import ExitCode
from harpctl.facts.collect import collect
from harpctl.facts.model import Facts
from harpctl.host.host import Host
from harpctl.network.big_tcp import plan_big_tcp
from harpctl.network.model import EniPlan
from harpctl.network.runtime import plan_competing_routes
from harpctl.option_types import AsJson


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """One command that was run, or the sizes that were set of an interface."""

    command: str
    error: str = ""  # "" when it succeeded


class BootResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `boot --json` prints."""

    ok: bool
    commands: tuple[CommandResult, ...]
    failed: tuple[str, ...]  # the findings of `harpctl validate`


def _channels(facts: Facts, confs: Sequence[Conf], count: int | None) -> list[tuple[str, ...]]:
    enis = [facts.eni(conf.interface) for conf in confs]
    wrong = [eni.name for eni in enis if eni is not None and eni.queues not in {0, count}]
    return [("ethtool", "-L", name, "combined", str(count)) for name in wrong] if count else []


def _routes(host: Host, facts: Facts, confs: dict[int, Conf]) -> list[tuple[str, ...]]:
    plans = []
    for number, conf in confs.items():
        eni = facts.eni(conf.interface)
        address = (
            next((cidr for cidr in eni.addresses if cidr.split("/")[0] == conf.address), "") if eni else ""
        )
        if address:
            plans.append(
                EniPlan(number=number, name=conf.interface, address=address, gateway=conf.gateway or "")
            )
    return [step.argv for step in plan_competing_routes(facts, host, plans) if isinstance(step, Run)]


def _set_sizes(host: Host, step: SetSizes) -> CommandResult:
    try:
        host.set_link_sizes(step.interface, step.sizes)
    except OSError as error:
        return CommandResult(command=f"set {step.text}", error=error.strerror or str(error))
    return CommandResult(command=f"set {step.text}")


def _big_tcp(host: Host, facts: Facts, confs: Sequence[Conf]) -> list[CommandResult]:
    enis = [(eni, conf.driver or "auto") for conf in confs if (eni := facts.eni(conf.interface)) is not None]
    group, _left_alone = plan_big_tcp(enis)
    return [_set_sizes(host, step) for step in group.steps if isinstance(step, SetSizes)]


def run_commands(host: Host, channels: int | None, *, big_tcp: bool) -> list[CommandResult]:
    """Set again what a boot resets, where it is not as it should be."""
    facts = collect(host)
    files = read_confs(host)  # the checks report a file that is wrong
    confs = {file.number: file.conf for file in files if file.number is not None and file.conf is not None}
    commands = _channels(facts, list(confs.values()), channels) + _routes(host, facts, confs)
    done = [host.run(argv) for argv in commands]
    results = [
        CommandResult(command=" ".join(one.argv), error=one.last_line if one.code else "") for one in done
    ]
    return results + (_big_tcp(host, facts, list(confs.values())) if big_tcp else [])


def _line(finding: Finding) -> str:
    return f"{finding.title}: {finding.cause}"


def run_boot(host: Host, channels: int | None, *, big_tcp: bool = False) -> BootResult:
    """Set again what a boot resets, and check the host."""
    commands = run_commands(host, channels, big_tcp=big_tcp)
    findings = examine(real_context(host, collect(host), DoctorOptions()), only_validating=True)
    failed = tuple(_line(finding) for finding in findings if finding.level == "fail")
    ok = worst(findings) != "fail" and not any(done.error for done in commands)
    return BootResult(ok=ok, commands=tuple(commands), failed=failed)


def boot(
    *,
    channels: Annotated[
        int | None, typer.Option("--channels", help="Combined channels of each ENI; else unchanged.")
    ] = None,
    big_tcp: Annotated[
        bool,
        typer.Option("--big-tcp/--no-big-tcp", help="Let TCP use packets of 128 KiB on each ENI."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set what does not survive a boot, and check the host: what harp.service runs."""
    result = run_boot(Host(), channels, big_tcp=big_tcp)
    if as_json:
        print_json(result)
    else:
        for done in result.commands:
            OUT.print(f"{done.command}: {done.error or 'done'}", markup=False)
        for line in result.failed:
            OUT.print(line, markup=False)
        message = "HARP is set up correctly." if result.ok else "Run `harpctl doctor` to see what to do."
        OUT.print(message, markup=False)
    if not result.ok:
        raise typer.Exit(int(ExitCode.FAILED))
