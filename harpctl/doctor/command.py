# SPDX-License-Identifier: Apache-2.0
"""`harpctl validate`, `harpctl doctor` and `harpctl topo`: read-only but for doctor --fix."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import click
import msgspec

from harpctl.change.apply import apply_plan
from harpctl.change.os_errors import require_root
from harpctl.change.rollback import recover_interrupted
from harpctl.command_line import FILE, command, flag, json_option, option, root_option
from harpctl.console import ERR, OUT, ConsoleProgress, NoProgress, Progress, print_json, print_table
from harpctl.doctor.archive import read_findings
from harpctl.doctor.context import DoctorOptions, real_context
from harpctl.doctor.examine import run_checks, safe_repairs
from harpctl.doctor.model import Finding, to_plain, worst_level
from harpctl.doctor.probe_packet import PORT, PORT_MAX, PORT_MIN
from harpctl.doctor.responder import SECONDS, Responder, own_addresses
from harpctl.doctor.show import show_all, show_failures
from harpctl.doctor.topo import draw_topo, make_topo
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.collect import collect_facts
from harpctl.host.host import Host, open_host

FAILED = int(ExitCode.FAILED)
SECONDS_MAX = 86_400


def _examine_host(host: Host, options: DoctorOptions, *, only_validating: bool = False) -> list[Finding]:
    return run_checks(real_context(host, collect_facts(host), options), only_validating=only_validating)


def _print_findings(findings: Sequence[Finding], **more: object) -> None:
    level = worst_level(findings)
    shown = [to_plain(finding) for finding in findings]
    print_json({"ok": level != "fail", "worst": level, "findings": shown, **more})


@command()
@root_option
@flag("--boot", help="Count the hugepages of the next boot as present.")
@json_option
def validate(*, root: Path | None, boot: bool, as_json: bool) -> None:
    """Check whether this host is set up correctly: exit code 0, or 1 and what is wrong."""
    findings = _examine_host(open_host(root), DoctorOptions(after_boot=boot), only_validating=True)
    failed = worst_level(findings) == "fail"
    if as_json:
        _print_findings(findings, transactions=[])
    else:
        show_failures(findings)
        for finding in findings:
            if finding.level == "ok" and finding.cause:  # the plugin that NCCL takes, and why
                OUT.print(finding.cause, markup=False)
        bad = sum(finding.level == "fail" for finding in findings)
        good = sum(finding.level == "ok" for finding in findings)
        if failed:
            OUT.print(f"HARP is not set up correctly: {bad} failed.", style="bold red", markup=False)
        else:
            OUT.print(f"HARP is set up correctly: {good} checks.", style="green", markup=False)
    if failed:
        raise click.exceptions.Exit(FAILED)


@command()
@option(
    "--peer",
    metavar="HOST",
    multiple=True,
    help="Probe the network path to these names or addresses, a comma list.",
)
@flag("--serve", help="Answer another host's --peer.")
@option("--port", type=click.IntRange(PORT_MIN, PORT_MAX), default=PORT, help="The port of the probes.")
@option(
    "--within",
    "within_s",
    metavar="S",
    type=click.FloatRange(1, SECONDS_MAX),
    default=SECONDS,
    help="How long --serve answers.",
)
@flag("--fix", help="Apply the repairs that are safe, then check again.")
@flag("--verbose", "-v", help="Also show the checks that passed.")
@option("--bundle", metavar="FILE", type=FILE, help="Show the findings in this file of `harpctl report`.")
@root_option
@json_option
def doctor(
    *,
    peer: tuple[str, ...],
    serve: bool,
    port: int,
    within_s: float,
    fix: bool,
    verbose: bool,
    bundle: Path | None,
    root: Path | None,
    as_json: bool,
) -> None:
    """Find what keeps HARP from working here, or slows it down, and show the command that repairs it."""
    if bundle is not None:
        if peer or serve or fix or root is not None:
            raise click.BadParameter("can be combined with --verbose and --json only", param_hint="--bundle")
        _show_bundle(bundle, verbose=verbose, as_json=as_json)
        return
    if serve:
        _answer_probes(port, within_s)
        return
    names = tuple(name for text in peer for name in text.split(",") if name)
    host, options = open_host(root), DoctorOptions(peers=names, port=port)
    progress = NoProgress() if as_json else ConsoleProgress()
    if fix:
        recover_interrupted(host, progress=progress)
    with progress.working(f"Probing {', '.join(names)}") if names else nullcontext():
        findings = _examine_host(host, options)
    fixed = _apply_repairs(host, findings, progress) if fix else []
    if fixed:
        findings = _examine_host(host, options)
    if as_json:
        _print_findings(findings, transactions=fixed)
    else:
        show_all(findings, verbose=verbose)
    if worst_level(findings) == "fail":
        raise click.exceptions.Exit(FAILED)


def _show_bundle(path: Path, *, verbose: bool, as_json: bool) -> None:
    """Show the findings of a bundle as they would be shown on its host."""
    manifest, findings = read_findings(path)
    if as_json:
        _print_findings(findings, host=manifest.host, time=manifest.time, unread=manifest.unread)
    else:
        who = "root" if manifest.is_root else "no root"
        OUT.print(f"{manifest.host} at {manifest.time}, harpctl {manifest.harpctl}, {who}", markup=False)
        for unread in manifest.unread:
            OUT.print(f"not in the bundle: {unread.what}: {unread.why}", style="dim", markup=False)
        show_all(findings, verbose=verbose)
    if worst_level(findings) == "fail":
        raise click.exceptions.Exit(FAILED)


def _apply_repairs(host: Host, findings: list[Finding], progress: Progress) -> list[str]:
    """Apply the safe repairs one by one; return the transactions' ids. A repair that fails is reported."""
    plans = safe_repairs(findings)
    if plans:
        require_root(host)
    done = []
    for plan in plans:
        try:
            done.append(apply_plan(plan, host, what="harpctl doctor --fix", progress=progress))
        except HarpError as error:
            ERR.print(f"{plan.groups[0].name}: {error}", markup=False)
    return done


def _answer_probes(port: int, within_s: float) -> None:
    addresses = own_addresses()
    with Responder(addresses, port) as responder:
        ERR.print(f"Answering on port {port}, UDP and TCP, for {within_s:g} s. On the other host:", markup=False)
        ERR.print(f"  harpctl doctor --port {port} --peer {','.join(addresses)}", markup=False)
        with suppress(KeyboardInterrupt):  # the usual end: the other host is done
            responder.run(within_s)
    ERR.print(f"{responder.answered} probes answered.", markup=False)


@command()
@root_option
@json_option
def topo(*, root: Path | None, as_json: bool) -> None:
    """Show the distances of GPUs, ENIs and NUMA nodes, and which ENI serves which GPU."""
    found = make_topo(collect_facts(open_host(root)))
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    table, notes = draw_topo(found)
    print_table(table, wide=True)
    for note in notes:
        OUT.print(note, markup=False)
