# SPDX-License-Identifier: Apache-2.0
"""Checks of the host: one that HARP knows, no setup unfinished, and what was set up outlasts a boot."""

from __future__ import annotations

from collections.abc import Iterator

from harpctl.change.journal import Journal
from harpctl.change.steps import MakeLink, Run
from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.host_clock import ClockState
from harpctl.doctor.hugepages import next_boot, requested_pages
from harpctl.doctor.model import CheckResult, check, fail, skip, warn
from harpctl.setup import unit
from harpctl.setup.options import PACKAGED_PROGRAM, PROGRAM
from harpctl.units import size_name

CLOCK_ERROR_MAX_US = 3000  # drains of the congestion control last 4 ms (plugin/src/proto/cc_target.c)
CHRONY = {"debian": "apt-get install chrony", "rhel": "dnf install chrony"}


@check("system.distribution", "The distribution is one that HARP knows", validates=False)
def check_distribution(context: Context) -> Iterator[CheckResult]:
    """Look at the family by os-release."""
    system = context.facts.system
    if not system.family:
        yield warn(
            f"{system.name or system.id or 'This system'} is neither of the Debian nor of the Red Hat family:"
            " harpctl setup does not know its boot loader.",
            "harpctl setup --no-kernel-args  # and add the kernel arguments by hand",
        )


@check("system.gpus", "There are GPUs", validates=False)
def check_gpus(context: Context) -> Iterator[CheckResult]:
    """Look for GPUs on the PCI bus."""
    if not context.facts.gpus:
        yield warn("No GPU is on the PCI bus.", "lspci -d 10de:")


@check("system.journal", "No setup was interrupted")
def check_journal(context: Context) -> Iterator[CheckResult]:
    """Look for a transaction without an end."""
    for transaction in Journal(context.host).transactions():
        if transaction.is_open:
            yield fail(
                f"`{transaction.begin.what}` of {transaction.begin.time} ({transaction.id}) was interrupted"
                " or still runs.",
                "harpctl rollback",
            )


@check("system.arguments", "The boot entries ask for hugepages", needs.host, needs.wanted_pages)
def check_arguments(context: Context) -> Iterator[CheckResult]:
    """Look at the kernel arguments of all entries of the boot menu."""
    boot = context.facts.boot
    if not boot.entries:
        why = f": {boot.reason}" if boot.reason else ""
        yield skip(f"The boot entries are not known{why}.")
        return
    size = size_name(context.page_size)
    lacking = [entry for entry in boot.entries if not requested_pages(context, entry.args)]
    if len(lacking) == len(boot.entries):
        yield fail(f"No boot entry asks for hugepages of {size}: after a reboot there are none.", "harpctl setup")
    elif lacking:
        titles = ", ".join(f"'{entry.title}' ({entry.source})" for entry in lacking)
        yield fail(f"These boot entries do not ask for hugepages of {size}: {titles}.", "harpctl setup")


@check(
    "system.reboot",
    "The running kernel was booted with the arguments of its boot entries",
    needs.machine,
    needs.host,
    validates=False,
)
def check_reboot(context: Context) -> Iterator[CheckResult]:
    """Compare the running command line with what the next boot brings."""
    have, coming = requested_pages(context, context.facts.boot.cmdline), next_boot(context)
    changes = Journal(context.host).transactions()
    since = f"; set up at {changes[-1].begin.time}" if changes else ""
    if coming and have != coming and not context.options.after_boot:
        yield warn(
            f"It was booted with {have} hugepages of {size_name(context.page_size)}, and the next boot brings"
            f" {coming}{since}.",
            "reboot",
        )


@check("system.unit", f"{unit.NAME} sets the ENIs up at boot", needs.host, needs.conf)
def check_unit(context: Context) -> Iterator[CheckResult]:
    """Look for the unit and the link that starts it; nothing else sets ENIs up that setup recorded."""
    if context.facts.system.init != "systemd" or not context.conf_files:
        return
    programs = (PROGRAM, PACKAGED_PROGRAM)
    result = fail if context.record.enis else warn
    if not (context.is_running or any(map(context.host.is_file, programs))):
        yield skip(f"The image holds no harpctl for it: neither {' nor '.join(programs)}.")
        return
    if not context.host.is_file(unit.PATH):
        yield result(f"{unit.PATH} is not there.", "harpctl setup")
    elif context.host.stat(unit.WANTED) is None:
        steps: list[MakeLink | Run] = [MakeLink(path=unit.WANTED, target=unit.PATH, why="starts it at boot")]
        if context.host.runs_commands:
            steps.append(Run(argv=("systemctl", "daemon-reload")))
        yield result(f"{unit.NAME} is there and not enabled.", f"systemctl enable {unit.NAME}", steps=steps)


@check(
    "system.unit_passed",
    f"{unit.NAME} and the check at boot passed",
    needs.machine,
    needs.host,
    validates=False,
)
def check_unit_passed(context: Context) -> Iterator[CheckResult]:
    """Ask systemd how the units ended."""
    for name in unit.NAMES:
        if context.host.is_file(unit.PATH) and context.host.query(("systemctl", "is-failed", name)):
            yield warn(f"{name} failed.", f"journalctl -b -u {name}", f"systemctl restart {name}")


@check("system.clock", "The hosts' clocks agree: NTP or PTP disciplines this one", needs.machine, validates=False)
def check_clock(context: Context) -> Iterator[CheckResult]:
    """Ask the kernel for the state of the clock, unless the setting `shared_clock` decides."""
    setting = _shared_clock(context)
    if setting == "off":
        yield skip("shared_clock is off: random loss of more than 1 % counts as congestion.")
    elif setting == "auto":
        yield from _check_discipline(context, context.machine.clock())


def _shared_clock(context: Context) -> str:
    """Return the setting: of the environment, else of the conf files, which have one value."""
    of_files = (conf.get("shared_clock") for _path, conf in context.confs)
    return context.environment.get("HARP_SHARED_CLOCK") or str(next(filter(None, of_files), "auto"))


def _check_discipline(context: Context, clock: ClockState) -> Iterator[CheckResult]:
    """Say why the drains of the congestion control do not coincide with those of other hosts."""
    costs = "random loss of more than 1 % counts as congestion"
    if clock.refusal:
        yield warn(
            f"The kernel does not say whether the clock is disciplined (adjtimex: {clock.refusal}): {costs}.",
            "set shared_clock = on where NTP or PTP runs on all hosts",
        )
    elif not clock.is_disciplined:
        on_host = "on the host: " if context.facts.system.container else ""
        install = CHRONY.get(context.facts.system.family, "install chrony, or another daemon of NTP or PTP")
        yield warn(
            f"Nothing disciplines the clock: {costs}.",
            f"{on_host}{install}",
            f"{on_host}chronyc waitsync 60 0.001",
        )
    elif clock.error_us is not None and clock.error_us > CLOCK_ERROR_MAX_US:
        yield warn(
            f"The clock is estimated to be {clock.error_us / 1000:.0f} ms wrong; hosts have to agree to"
            f" {CLOCK_ERROR_MAX_US // 1000} ms.",
            "chronyc sources  # a nearer server, or PTP",
        )
