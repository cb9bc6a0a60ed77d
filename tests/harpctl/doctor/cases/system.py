# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of the system."""

from __future__ import annotations

import json

from msgspec.structs import replace

from harpctl.doctor.host_clock import ClockState
from harpctl.facts.model import BootEntry
from harpctl.facts.sources import RECORD
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.cases.hugepages import without_arguments
from tests.harpctl.doctor.world import World


@case(
    "system.distribution",
    "warn",
    "Arch Linux is neither",
    "harpctl setup --no-kernel-args  # and add the kernel arguments by hand",
)
def unknown_distribution(world: World) -> None:
    world.change("system", family="", name="Arch Linux")


@case("system.gpus", "warn", "No GPU is on the PCI bus", "lspci -d 10de:")
def no_gpus(world: World) -> None:
    world.facts = replace(world.facts, gpus=())


@case("system.journal", "fail", "`harpctl setup` of 2026-11-21T15:00:00Z", "harpctl rollback")
def interrupted(world: World) -> None:
    _write_journal(world)


@case("system.arguments", "fail", "No boot entry asks for hugepages of 1 GiB", "harpctl setup")
def no_arguments(world: World) -> None:
    without_arguments(world)


@case("system.arguments", "fail", "do not ask for hugepages of 1 GiB: 'Rescue' (rescue.conf)", "harpctl setup")
def one_entry_without(world: World) -> None:
    entry = BootEntry(title="Rescue", source="rescue.conf", args="ro single")
    world.change("boot", entries=(*world.facts.boot.entries, entry))


def _write_journal(world: World, *records: dict[str, object]) -> None:
    begin = {
        "record": "begin",
        "format": 1,
        "version": "0.1",
        "id": "0001-x",
        "what": "harpctl setup",
        "time": "2026-11-21T15:00:00Z",
    }
    lines = "".join(json.dumps(record) + "\n" for record in (begin, *records))
    world.write("/var/lib/harp/journal/0001-x.jsonl", lines)


@case("system.reboot", "warn", "the next boot brings 20; set up at 2026-11-21T15:00:00Z.", "reboot")
def reboot_needed_since(world: World) -> None:
    reboot_needed(world)
    _write_journal(world, {"record": "done"})


@case("system.reboot", "warn", "booted with 4 hugepages of 1 GiB, and the next boot brings 20", "reboot")
def reboot_needed(world: World) -> None:
    world.change("boot", cmdline="hugepagesz=1G hugepages=0:2,1:2")


@case("system.unit", "fail", "harp.service is not there", "harpctl setup")
def no_unit(world: World) -> None:
    world.remove("/etc/systemd/system/harp.service")


@case("system.unit", "fail", "there and not enabled", "systemctl enable harp.service", is_safe=True)
def unit_not_enabled(world: World) -> None:
    world.remove("/etc/systemd/system/multi-user.target.wants/harp.service")


@case("system.unit", "warn", "harp.service is not there", "harpctl setup")
def no_unit_and_nothing_for_it(world: World) -> None:
    world.remove("/etc/systemd/system/harp.service")
    world.remove(RECORD)


@case(
    "system.unit_passed",
    "warn",
    "harp.service failed",
    "journalctl -b -u harp.service",
    "systemctl restart harp.service",
)
def unit_failed(world: World) -> None:
    world.runner.answers["systemctl is-failed harp.service"] = "failed\n"


def _with_clock(world: World, clock: ClockState) -> None:
    assert world.machine
    world.machine.state_of_clock = clock


@case(
    "system.clock",
    "warn",
    "Nothing disciplines the clock: random loss of more than 1 % counts as congestion.",
    "apt-get install chrony",
    "chronyc waitsync 60 0.001",
)
def undisciplined_clock(world: World) -> None:
    _with_clock(world, ClockState(is_disciplined=False))


@case(
    "system.clock",
    "warn",
    "Nothing disciplines the clock",
    "on the host: install chrony, or another daemon of NTP or PTP",
    "on the host: chronyc waitsync 60 0.001",
)
def undisciplined_clock_of_a_container(world: World) -> None:
    world.change("system", family="", container="docker")
    undisciplined_clock(world)


@case("system.clock", "warn", "estimated to be 12 ms wrong", "chronyc sources  # a nearer server, or PTP")
def wrong_clock(world: World) -> None:
    _with_clock(world, ClockState(error_us=12_000))


@case(
    "system.clock",
    "warn",
    "adjtimex: Operation not permitted",
    "set shared_clock = on where NTP or PTP runs on all hosts",
)
def unknown_clock(world: World) -> None:
    _with_clock(world, ClockState(refusal="Operation not permitted", is_disciplined=False))


@case("system.clock", "skip", "shared_clock is off")
def clock_of_its_own(world: World) -> None:
    undisciplined_clock(world)
    world.conf(1, shared_clock="off")
