# SPDX-License-Identifier: Apache-2.0
"""Who is at fault: what hosts say of themselves, held against most of them, and what failed between two.

Pure functions. A failure between two hosts is the fault of the one that fails with most others; where each
fails with one only, the pair is named.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from harpctl.doctor.reach import ANSWERED, ECHO, REFUSED, SILENT, TOO_BIG
from harpctl.doctor.ways import Way
from harpctl.fleet import Answer
from harpctl.preflight.model import Level, Own, OwnEni, Problem, Rate, Struct

UNREACHED = "ssh"  # the check that a host answers at all
SLOW = 0.5  # of what the others reach
V = TypeVar("V", bound=Hashable)


class Fault(Struct, frozen=True, kw_only=True):
    """What failed on the way from one host to another."""

    check: str
    source: str
    target: str
    cause: str  # the same words for the same cause, so that they can be counted
    repair: tuple[str, ...] = ()


# ---- what hosts are ----


def unheard(answers: Iterable[Answer]) -> list[Problem]:
    """Name the hosts that play no part."""
    return [
        _problem(UNREACHED, one.host, f"{one.result}: {one.detail}", *([one.remedy] if one.remedy else []))
        for one in answers
    ]


def odd_ones(values: Mapping[str, V]) -> tuple[V | None, dict[str, V]]:
    """Return what most hosts have, and those that have something else; all where nothing is had by most."""
    counts = Counter(values.values()).most_common(2)
    if len(counts) < 2:
        return (counts[0][0] if counts else None), {}
    if counts[0][1] == counts[1][1]:
        return None, dict(values)
    usual = counts[0][0]
    return usual, {host: value for host, value in values.items() if value != usual}


def of_hosts(owns: Mapping[str, Own]) -> list[Problem]:
    """Name what is wrong with single hosts: what their doctors say, and what they have unlike others."""
    found: list[Problem] = []
    for host, own in owns.items():
        found += [_problem("conf", host, one.cause, *one.repair) for one in own.failed]
        if not own.enis and not own.failed:
            found.append(_problem("conf", host, "No conf file names an ENI that is there.", "harpctl setup"))
        if not own.perf:
            found.append(_problem("build", host, "harp-perf is missing.", "Install the whole of harpctl."))
    return [*found, *_builds(owns), *_mtus(owns), *_notes(owns)]


def _builds(owns: Mapping[str, Own]) -> list[Problem]:
    usual_wire, other_wires = odd_ones({host: own.wire for host, own in owns.items()})
    _usual, others = odd_ones({host: (own.version, own.build) for host, own in owns.items()})
    found = []
    for host in others:
        own = owns[host]
        cause = f"It has {_build(own.version, own.build)}; {_most(owns, host)}."
        if host in other_wires:
            cause += f" They have no wire version in common: {_range(own.wire)}"
            cause += f" here, {_range(usual_wire)} there." if usual_wire else " here."
        remedy = f"Install the same file on all hosts: harpctl install --plugin FILE -H {host}"
        found.append(_problem("wire" if host in other_wires else "build", host, cause, remedy))
    return found


def _most(owns: Mapping[str, Own], host: str) -> str:
    others = Counter((own.version, own.build) for name, own in owns.items() if name != host)
    (version, build), count = others.most_common(1)[0]
    return f"{count} of {len(owns)} hosts have {_build(version, build)}"


def _build(version: str, build: str) -> str:
    return f"HARP {version or 'unknown'}, build {build or 'unknown'}"


def _range(wire: Sequence[int]) -> str:
    return "-".join(map(str, dict.fromkeys(wire))) or "unknown"


def _mtus(owns: Mapping[str, Own]) -> list[Problem]:
    """Name the ENIs with another MTU than those of the same number elsewhere."""
    found = []
    for lane in range(max((len(own.enis) for own in owns.values()), default=0)):
        enis = {host: own.enis[lane] for host, own in owns.items() if lane < len(own.enis)}
        usual, others = odd_ones({host: eni.mtu for host, eni in enis.items()})
        for host, mtu in others.items():
            name = enis[host].name
            if usual is None:
                said = ", ".join(f"{other} {eni.mtu}" for other, eni in enis.items())
                found.append(_problem("mtu", host, f"{name} has MTU {mtu}; they differ: {said}."))
                continue
            count = len(enis) - len(others)
            cause = f"{name} has MTU {mtu}, that of {count} other hosts is {usual}."
            found.append(_problem("mtu", host, cause, f"ip link set dev {name} mtu {usual}  # on {host}"))
    return found


def _notes(owns: Mapping[str, Own]) -> list[Problem]:
    """Tell what makes HARP slower, but does not stop it."""
    found = []
    for host, own in owns.items():
        found += [_note(one.id, host, one.cause, *one.repair) for one in own.warned]
        if not own.is_installed:
            cause = f"NCCL does not find HARP here; {own.plugin} was looked at."
            found.append(_note("build", host, cause, f"harpctl install -H {host}"))
    _usual, others = odd_ones({host: sum(eni.speed_mbps for eni in own.enis) for host, own in owns.items()})
    for host, speed in others.items():
        found.append(_note("speed", host, f"Its ENIs have {speed} Mbit/s together, unlike others."))
    return found


# ---- what is between them ----


def plan_ways(owns: Mapping[str, Own]) -> dict[str, tuple[Way, ...]]:
    """Return what each host is to probe: from each ENI to that of the same number of every other host."""
    return {
        host: tuple(
            Way(eni=eni.name, source=eni.address, target=there.address, mtu=eni.mtu, ports=there.tried)
            for name, other in owns.items()
            if name != host
            for eni, there in zip(own.enis, other.enis, strict=False)
            if (":" in eni.address) == (":" in there.address)
        )
        for host, own in owns.items()
    }


def of_ways(owns: Mapping[str, Own], ways: Mapping[str, Sequence[Way]]) -> list[Problem]:
    """Name what the probes found."""
    places = {eni.address: (host, eni) for host, own in owns.items() for eni in own.enis}
    faults = []
    for source, found in ways.items():
        for way in found:
            target, eni = places[way.target]
            faults += _faults(way, source, target, eni)
    return blame(faults, list(owns))


def _faults(way: Way, source: str, target: str, eni: OwnEni) -> list[Fault]:
    def fault(check: str, cause: str, *repair: str) -> Fault:
        return Fault(check=check, source=source, target=target, cause=cause, repair=repair)

    low, high = eni.ports
    allow = f"let UDP and TCP {low}-{high} from the other hosts in, in firewall and security group"
    reach, found = way.reach, []
    tcp = [port for port, said in reach.tcp.items() if said not in {ECHO, REFUSED}]
    udp = [port for port, said in reach.ports.items() if said not in ANSWERED]
    if reach.udp not in ANSWERED:
        silent = "no answer" if reach.udp == SILENT else reach.udp
        found.append(fault("udp", f"{eni.name} does not answer UDP: {silent}.", allow))
    elif udp:
        cause = f"{eni.name} does not answer on UDP {_ports(udp)} of {low}-{high}."
        found.append(fault("ports", cause, allow))
    if tcp:
        found.append(fault("tcp", f"{eni.name} does not answer on TCP {_ports(tcp)}.", allow))
    if reach.full and reach.full not in ANSWERED:
        how = "a router says they are too big" if reach.full == TOO_BIG else "they vanish"
        cause = f"Packets of {way.mtu} bytes do not arrive at {eni.name}: {how}; {reach.passed} bytes pass."
        repair = f"ip link set dev {eni.name} mtu {reach.passed}  # on all hosts, or raise it on the way"
        found.append(fault("mtu", cause, repair))
    return found


def _ports(ports: Sequence[int]) -> str:
    return f"port{'s' * (len(ports) != 1)} {', '.join(map(str, ports))}"


def blame(faults: Iterable[Fault], hosts: Sequence[str]) -> list[Problem]:
    """Name the fewest hosts that explain all faults, then the pairs that are left."""
    all_faults = list(faults)
    left, named = all_faults, []
    while left:
        partners = {host: _partners(host, left) for host in hosts}
        worst = max(hosts, key=lambda host: len(partners[host]))
        if len(partners[worst]) < 2:
            break
        named.append(worst)
        left = [one for one in left if worst not in {one.source, one.target}]
    counts = {
        (host, check): len(_partners(host, [one for one in all_faults if one.check == check]))
        for check in {one.check for one in all_faults}
        for host in named
    }
    found = []
    for host in named:
        its = [one for one in all_faults if _blamed(one, counts) == host]
        found += _of_one(host, its, len(hosts) - 1)
    pairs = {(one.check, *sorted((one.source, one.target), key=hosts.index)): one for one in left}
    for (check, *pair), one in pairs.items():
        cause = f"From {one.source} to {one.target}: {one.cause}"
        found.append(Problem(check=check, level="fail", hosts=tuple(pair), cause=cause, repair=one.repair))
    return found


def _partners(host: str, faults: Iterable[Fault]) -> set[str]:
    """Return the hosts that one fails with."""
    ends = ((one.source, one.target) for one in faults)
    return {end for pair in ends if host in pair for end in pair} - {host}


def _blamed(fault: Fault, counts: Mapping[tuple[str, str], int]) -> str:
    """Return which of the named hosts a fault is laid to: the one that fails this check with most."""
    ends = [host for host in (fault.target, fault.source) if (host, fault.check) in counts]
    return max(ends, key=lambda host: counts[host, fault.check], default="")


def _of_one(host: str, faults: Sequence[Fault], others: int) -> list[Problem]:
    """Tell what one host is to blame for: of each check the cause that is there most often."""
    found = []
    for check in dict.fromkeys(one.check for one in faults):
        its = [one for one in faults if one.check == check]
        its = [one for one in its if one.target == host] or its
        counts = Counter(one.cause for one in its)
        said = max(its, key=lambda one: counts[one.cause])
        partners = {one.source if one.target == host else one.target for one in its}
        where = "" if said.target == host else f"From here to {said.target}: "
        cause = f"{where}{said.cause} So it is with {len(partners)} of {others} hosts."
        found.append(_problem(check, host, cause, *said.repair))
    return found


# ---- how fast they are ----


def of_rates(rates: Iterable[Rate]) -> list[Problem]:
    """Name the ENIs that reach less than half of what the others do, out or in."""
    found = []
    by_lane: dict[int, list[Rate]] = {}
    for rate in rates:
        by_lane.setdefault(rate.lane, []).append(rate)
    for ones in by_lane.values():
        out, into = _by_host(ones, "source"), _by_host(ones, "target")
        if len(out) < 3:
            continue  # of two hosts nobody knows which is the slow one
        names = {one.source: one.eni for one in ones}
        usual = statistics.median(max(values) for values in (*out.values(), *into.values()))
        for host, name in names.items():
            slow = [
                f"{statistics.median(values):.3g} Gbit/s {way}"
                for way, values in (("out", out[host]), ("in", into.get(host, [])))
                if values and max(values) < SLOW * usual
            ]
            if slow:
                cause = f"{name} reaches {' and '.join(slow)}; the others reach {usual:.3g}."
                found.append(_problem("rate", host, cause, f"harpctl doctor  # on {host}"))
    return found


def _by_host(rates: Iterable[Rate], end: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for rate in rates:
        found.setdefault(getattr(rate, end), []).append(rate.gbps)
    return found


# ---- problems ----


def fold(problems: Iterable[Problem]) -> list[Problem]:
    """Make one note of the same note of several hosts."""
    found: dict[tuple[str, Level, str, tuple[str, ...]], list[str]] = {}
    kept = []
    for one in problems:
        if one.level == "fail":
            kept.append(one)
        else:
            found.setdefault((one.check, one.level, one.cause, one.repair), []).extend(one.hosts)
    notes = [
        Problem(check=check, level=level, hosts=tuple(hosts), cause=cause, repair=repair)
        for (check, level, cause, repair), hosts in found.items()
    ]
    return kept + notes


def unfit(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return the hosts that failed, each once."""
    failed = (host for one in problems if one.level == "fail" for host in one.hosts)
    return tuple(dict.fromkeys(failed))


def _problem(check: str, host: str, cause: str, *repair: str) -> Problem:
    return Problem(check=check, level="fail", hosts=(host,), cause=cause, repair=repair)


def _note(check: str, host: str, cause: str, *repair: str) -> Problem:
    return msgspec.structs.replace(_problem(check, host, cause, *repair), level="warn")
