# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab`: a lab to try things in, and the measurements that make one for themselves."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from harpctl.command_line import Group, argument, command, dry_run_option, json_option, option
from harpctl.console import OUT, ConsoleProgress, NoProgress, Progress, print_json
from harpctl.errors import ExitCode, HarpError
from harplab.bench.command import lab_bench
from harplab.bench.resources import resources
from harplab.bench.step_command import lab_step
from harplab.bench.suite_command import suite
from harplab.grouped import group_options
from harplab.lab import persistent
from harplab.lab.faults import BOTH, DirectionFaults
from harplab.lab.lab import Lab
from harplab.lab.numbers import parse_share
from harplab.lab.options import LabOptions
from harplab.lab.plan import plan_build
from harplab.simulate.command import lab_simulate

DEFAULT_NAME = "lab"
name_option = option("--name", default=DEFAULT_NAME, help="The lab's name, where there are several.")
LINK_WORDS: dict[str, Callable[[Lab, int, int], None]] = {
    "down": Lab.link_down,
    "up": Lab.link_up,
    "unplug": Lab.unplug,
    "plug": Lab.plug,
    "no-address": Lab.remove_address,
    "address": Lab.add_address,
    "clear": Lab.restore,
}


class LabResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of up, fault and down with --json."""

    ok: bool = True
    name: str
    summary: str


class LabList(msgspec.Struct, frozen=True, kw_only=True):
    """The output of status with --json."""

    ok: bool = True
    labs: list[persistent.LabStatus]


def _make_progress(*, as_json: bool) -> Progress:
    return NoProgress() if as_json else ConsoleProgress()


def _print_result(done: LabResult, *lines: str, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    OUT.print(done.summary, markup=False)
    for line in lines:
        OUT.print(f"  {line}", markup=False)


@command()
@group_options(network=LabOptions)
@name_option
@dry_run_option
@json_option
def up(*, network: LabOptions, name: str, dry_run: bool, as_json: bool) -> None:
    """Create hosts of network namespaces, joined by a switch, until `harpctl lab down`."""
    spec = network.spec(switch=True)
    if dry_run:
        commands = [str(command) for command in plan_build(spec, persistent.prefix_of(name))]
        _print_result(LabResult(name=name, summary="\n".join(commands)), as_json=as_json)
        return
    with _make_progress(as_json=as_json).working(f"Making the lab {name}"):
        lab = persistent.up(name, spec)
    own = "" if name == DEFAULT_NAME else f" --name {name}"
    lines = [f"host {host}: {', '.join(_addresses_of_host(lab, host))}" for host in range(spec.hosts)]
    lines += [
        *lab.notes,
        f"run something on host 0:  harpctl lab exec{own} 0 -- ping -c 1 {lab.address(1)}",
        f"make a fault:             harpctl lab fault{own} 1 0 drop=1%",
        f"look at it:               harpctl lab status{own}",
        f"take it down:             harpctl lab down{own}",
    ]
    _print_result(LabResult(name=name, summary=f"Lab {name}: {spec.describe()}"), *lines, as_json=as_json)


def _addresses_of_host(lab: Lab, host: int) -> list[str]:
    return [f"{lab.enis[eni]} {lab.address(host, eni)}" for eni in range(lab.spec.eni_count(host))]


@command()
@option("--name", help="This lab only.")
@json_option
def status(*, name: str | None, as_json: bool) -> None:
    """Show the running labs, their hosts, ENIs and faults, and counts of packets that faults changed."""
    labs = [lab for lab in persistent.status() if name in {None, lab.name}]
    if as_json:
        print_json(LabList(labs=labs))
        return
    if not labs:
        OUT.print("No lab stands." if name is None else f"No lab named {name} stands.", markup=False)
    for lab in labs:
        OUT.print(f"Lab {lab.name}: {lab.description}", markup=False)
        if lab.is_ready:
            OUT.print(f"  {lab.dropped} of {lab.packets} packets dropped by caps and rules", markup=False)
        for host in lab.hosts:
            OUT.print(f"  host {host.host} ({host.namespace})", markup=False)
            for eni in host.enis:
                OUT.print(f"    {_eni_line(eni)}", markup=False)


def _eni_line(eni: persistent.EniStatus) -> str:
    parts = [f"{eni.name}  {eni.address or 'no address':<12} MTU {eni.mtu}  {eni.state}"]
    for direction, faults in eni.faults.items():
        counts = ", ".join(f"{count} {name}" for name, count in eni.counts.get(direction, {}).items() if count)
        words = " ".join(f"{key}={value:g}" for key, value in faults.items())
        parts.append(f"{direction}: {words}" + (f" ({counts})" if counts else ""))
    return "  ".join(parts)


@command("exec")
@argument("host", metavar="HOST", help="The host's number.")
@argument("words", metavar="COMMAND...", nargs=-1, required=True, help="What to run, after --.")
@name_option
def run_on_host(host: str, words: tuple[str, ...], *, name: str) -> None:
    """Run a command on a host of the lab, in place of harpctl: its output and exit code are the command's."""
    lab = persistent.find(name)
    argv = lab.command(_parse_number(host, "host", lab.spec.hosts), words)
    os.execvp(argv[0], argv)  # noqa: S606 -- exactly that is requested


@command()
@argument("host", metavar="HOST", help="The host's number.")
@argument("eni", metavar="ENI", help="The ENI's number.")
@argument(
    "words",
    metavar="FAULT...",
    nargs=-1,
    required=True,
    help="drop, burst, corrupt, duplicate or reorder=SHARE; burst_packets=N; reorder_ms or "
    "delay_ms=MS; path_mtu_bytes=N; blackhole (=0 ends it); cap=MBPS; mtu=N; down, up, unplug, plug, "
    "no-address, address; clear restores all.",
)
@option("--direction", default=BOTH, help="in: what goes to the host. out: what comes from it. both.")
@name_option
@json_option
def fault(host: str, eni: str, words: tuple[str, ...], *, direction: str, name: str, as_json: bool) -> None:
    """Change the faults of an ENI or its link; what is not named stays."""
    lab = persistent.find(name)
    where = (_parse_number(host, "host", lab.spec.hosts), _parse_number(eni, "eni"))
    changes = dict(parse_fault(word) for word in words)
    faults = lab.faults(*where)
    for word, value in changes.items():
        if word in LINK_WORDS:
            LINK_WORDS[word](lab, *where)
        elif word == "cap":
            lab.cap(*where, value or None)
        elif word == "mtu":
            lab.set_mtu(*where, int(value))
    on_packets = {word: value for word, value in changes.items() if word in DirectionFaults.__struct_fields__}
    if on_packets:
        faults.set(direction, **_convert_types(on_packets))
    _print_result(
        LabResult(name=name, summary=f"host {where[0]} eni{where[1]}: {' '.join(words)}"), as_json=as_json
    )


def _convert_types(changes: dict[str, float]) -> dict[str, float]:
    """Return each value the type of its field."""
    plain = DirectionFaults()
    return {name: type(getattr(plain, name))(value) for name, value in changes.items()}


def parse_fault(word: str) -> tuple[str, float]:
    """Read NAME=VALUE, or a word that needs no value."""
    name, equals, text = word.partition("=")
    known = {*DirectionFaults.__struct_fields__, "cap", "mtu"}
    if (name in LINK_WORDS and not equals) or (name == "blackhole" and not equals):
        return name, 1
    if name not in known or not equals:
        raise HarpError(
            f"{word!r} is no fault.",
            f"There are {', '.join(f'{name}=' for name in sorted(known))}, and {', '.join(LINK_WORDS)}.",
            ExitCode.USAGE,
        )
    return name, parse_share(text)


def _parse_number(text: str, what: str, count: int | None = None) -> int:
    digits = text.removeprefix("h" if what == "host" else "eni")
    if not digits.isdecimal() or (count is not None and int(digits) >= count):
        most = "" if count is None else f" from 0 to {count - 1}"
        raise HarpError(f"{text!r} is no {what}.", f"Write its number{most}.", ExitCode.USAGE)
    return int(digits)


@command()
@name_option
@json_option
def down(*, name: str, as_json: bool) -> None:
    """Remove a lab and end what runs in it, also after an interrupted `up`."""
    with _make_progress(as_json=as_json).working(f"Taking the lab {name} down"):
        was_there = persistent.down(name)
    summary = f"Lab {name} is gone." if was_there else f"No lab named {name} stands; nothing to do."
    _print_result(LabResult(name=name, summary=summary), as_json=as_json)


lab = Group(
    "lab",
    [up, status, run_on_host, fault, down, lab_bench, lab_step, suite, resources, lab_simulate],
    help="Hosts made of network namespaces, for measurements and tests.",
)
