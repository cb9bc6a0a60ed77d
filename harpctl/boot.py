# SPDX-License-Identifier: Apache-2.0
"""`harpctl boot`: gives each ENI what the record says (network/model.py). harp.service runs it at every boot.

Nothing of it is journalled, because the next boot forgets it. With --keep it goes on until it is ended, and
gives an ENI back what a network manager or somebody else takes away:

1. The lock of all that change the host is taken only where something lacks. While another harpctl has it, and
   while an interrupted transaction is to be undone, nothing is done.
2. What does not succeed is tried again after 1 s, 2 s and so on, at most every minute.
3. systemd is told that it is ready when all ENIs were there once, or after INTERFACES_WAIT_S.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import time
from collections.abc import Collection, Iterator

import click
import msgspec

from harpctl.change import store
from harpctl.change.journal import Journal
from harpctl.change.os_errors import require_root
from harpctl.change.steps import AnyStep, Run, SetControl, SetSizes
from harpctl.command_line import command, flag, json_option
from harpctl.confs.files import read_confs
from harpctl.console import OUT, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.eni import collect_enis
from harpctl.facts.model import Boot, Facts, Memory, Overrides, System
from harpctl.facts.sources import RECORD, collect_state
from harpctl.host.host import Host
from harpctl.network.big_tcp import plan_big_tcp
from harpctl.network.model import Interfaces, decode_record
from harpctl.network.runtime import plan_each, plan_stale_rules
from harpctl.network.watch import ChangeListener

INTERFACES_WAIT_S = 30.0  # drivers may still be loading
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
LOOK_S = 60.0  # the kernel reports no change of ARP settings, of sizes of TCP and of some drivers' channels
PAUSE_S = 1.0  # after a change, so that two who do not agree cost little


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """One change, or an ENI for which none could be planned."""

    step: str
    error: str = ""  # "" when it succeeded


class BootResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `boot --json`."""

    ok: bool
    steps: tuple[StepResult, ...]
    enis: tuple[str, ...] = ()  # those of the record, by the kernel's names


def _gather_facts(host: Host, names: Collection[str]) -> Facts:
    """Gather only what the steps of these ENIs need: this runs at each change of one."""
    kernel = host.read_word("/proc/sys/kernel/osrelease")
    enis, _foreign = collect_enis(host, Overrides(), kernel, [], names)
    return Facts(system=System(kernel=kernel), boot=Boot(), memory=Memory(), enis=enis)


def plan_boot(host: Host, record: Interfaces) -> tuple[list[AnyStep], list[StepResult], list[str]]:
    """Return what the ENIs lack, the ENIs that can't be set up, and the kernel's names of all."""
    confs = [file.conf for file in read_confs(host) if file.conf is not None] if record.big_tcp else []
    facts = _gather_facts(host, [eni.name for eni in record.enis] + [conf.interface for conf in confs])
    record = record.with_names(facts.name_of)
    names = [eni.name for eni in record.enis]
    sources = collect_state(host, names, {eni.version for eni in record.enis})
    steps = plan_stale_rules(sources, record.enis) if record.enis else []
    failed = []
    for name, lacking, error in plan_each(facts, sources, record.enis):
        steps += lacking
        failed += [StepResult(step=name, error=error)] if error else []
    pairs = [(facts.find_eni(conf.interface), conf.driver or "auto") for conf in confs]
    steps += plan_big_tcp((eni, driver) for eni, driver in pairs if eni is not None)[0].steps
    return steps, failed, names


def _carry_out(host: Host, step: AnyStep) -> StepResult:
    if isinstance(step, Run):
        done = host.run(step.argv)
        return StepResult(step=shlex.join(step.argv), error=done.last_line if done.code else "")
    text, error = step.why, ""
    try:
        if isinstance(step, SetSizes):
            text = f"set {step.text}"
            host.set_link_sizes(step.interface, step.sizes)
        elif isinstance(step, SetControl):
            host.write_control(step.path, step.value)
    except OSError as problem:
        error = problem.strerror or str(problem)
    return StepResult(step=text, error=error)


@contextlib.contextmanager
def _lock_host(host: Host) -> Iterator[None]:
    """Be the only one that changes the host, and change nothing where a transaction was interrupted."""
    if not host.is_dir(store.JOURNAL):  # nothing to undo, and nobody to wait for
        yield
        return
    with store.hold_lock(host):
        Journal(host).refuse_interrupted()
        yield


def run_boot(host: Host) -> BootResult:
    """Give each ENI what it lacks. Raises HarpError where another harpctl changes this host."""
    steps, failed, names = plan_boot(host, decode_record(host.read_bytes(RECORD)))
    results: list[StepResult] = []
    if steps:
        with _lock_host(host):
            steps, failed, names = plan_boot(host, decode_record(host.read_bytes(RECORD)))
            results = [_carry_out(host, step) for step in steps]
    results += failed
    ok = not any(result.error for result in results)
    return BootResult(ok=ok, steps=tuple(results), enis=tuple(names))


def _show_result(result: BootResult) -> None:
    for done in result.steps:
        OUT.print(f"{done.step}: {done.error or 'done'}", markup=False)


def _notify_ready() -> None:
    """Tell systemd, where it asks for it, that the ENIs are set up."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


def keep_enis(host: Host) -> None:
    """Set the ENIs up, and again whenever something of it is taken away. Never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the end that systemd expects
    watch = ChangeListener()  # before the first look, so that no change is missed
    deadline = time.monotonic() + INTERFACES_WAIT_S
    retry_s, is_ready, last = 0.0, False, ""
    names: tuple[str, ...] = ()
    while True:
        try:
            result = run_boot(host)
            names = result.enis
        except HarpError as error:
            result = BootResult(ok=False, steps=(StepResult(step="harp.service", error=error.message),))
        if str(result) != last:
            _show_result(result)
            last = str(result)
        if not is_ready and (result.ok or time.monotonic() >= deadline):
            _notify_ready()
            is_ready = True
        retry_s = 0.0 if result.ok else min(max(2 * retry_s, RETRY_FIRST_S), RETRY_MAX_S)
        wait_s = retry_s if is_ready else min(retry_s, RETRY_FIRST_S)
        time.sleep(PAUSE_S if result.steps and is_ready else 0)
        watch.wait_for_change(names, wait_s or LOOK_S)


@command()
@flag("--keep", "keep_on", help="Do it again whenever something takes it away.")
@json_option
def boot(*, keep_on: bool, as_json: bool) -> None:
    """Give each ENI what setup has recorded for it: what harp.service runs."""
    host = Host()
    require_root(host)
    if keep_on:
        keep_enis(host)
    result = run_boot(host)
    if as_json:
        print_json(result)
    else:
        _show_result(result)
    if not result.ok:
        raise click.exceptions.Exit(int(ExitCode.FAILED))
