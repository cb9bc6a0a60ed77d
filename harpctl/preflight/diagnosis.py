# SPDX-License-Identifier: Apache-2.0
"""The hosts at fault: by their states, compared with most others', and by failures between two.

Pure functions. A failure between two hosts is attributed to the one that fails with most others; where each
fails with one only, to the pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from harpctl.doctor.path_probe import ANSWERED, ECHO, REFUSED, SILENT, TOO_BIG
from harpctl.doctor.peer_probes import PeerProbe
from harpctl.fleet import Answer
from harpctl.ip import same_version
from harpctl.preflight.model import EniState, HostState, Level, Problem, Struct

UNREACHED = "ssh"  # the check that a host answers at all
V = TypeVar("V", bound=Hashable)


class Fault(Struct, frozen=True, kw_only=True):
    """A failure between two hosts."""

    check: str
    source: str
    target: str
    cause: str  # the same words for the same cause, so that they can be counted
    repair: tuple[str, ...] = ()


# ---- states of hosts ----


def report_unanswered(answers: Iterable[Answer]) -> list[Problem]:
    """Return a problem for each host whose agent did not answer."""
    return [
        _make_failure(UNREACHED, one.host, f"{one.result}: {one.detail}", *([one.remedy] if one.remedy else []))
        for one in answers
    ]


def find_outliers(values: Mapping[str, V]) -> tuple[V | None, dict[str, V]]:
    """Return the most common value, and the hosts with another one; all hosts where none is most common."""
    counts = Counter(values.values()).most_common(2)
    if len(counts) < 2:
        return (counts[0][0] if counts else None), {}
    if counts[0][1] == counts[1][1]:
        return None, dict(values)
    usual = counts[0][0]
    return usual, {host: value for host, value in values.items() if value != usual}


def host_problems(states: Mapping[str, HostState]) -> list[Problem]:
    """Return the problems of single hosts: failed checks, and differences from most hosts."""
    found: list[Problem] = []
    for host, state in states.items():
        found += [_make_failure("conf", host, one.cause, *one.repair) for one in state.failed]
        if not state.enis and not state.failed:
            found.append(_make_failure("conf", host, "No conf file names an ENI that is there.", "harpctl setup"))
        if not state.perf:
            found.append(_make_failure("build", host, "harp-perf is missing.", "Install the whole of harpctl."))
    return [
        *found,
        *_report_duplicates(states),
        *_report_builds(states),
        *_report_mtus(states),
        *_report_slow_hosts(states),
    ]


def _report_duplicates(states: Mapping[str, HostState]) -> list[Problem]:
    """Return a problem for what several hosts have of which each needs its own: one image, or one host."""
    networks = _owners_of_shared(
        {host: [f"{one.boot} {one.network}"] for host, one in states.items() if one.network}
    )
    same = {host for hosts in networks.values() for host in hosts}
    found = [
        _shared_problem("host", hosts, "are one host by several names.", "Name each host once.")
        for hosts in networks.values()
    ]
    others = {host: state for host, state in states.items() if host not in same}
    for field, kind, remedy in (
        ("address", "address", "Give each host addresses of its own."),
        ("mac", "MAC address", "Give each virtual machine a MAC address of its own, and boot it again."),
    ):
        owners = _owners_of_shared(
            {host: [getattr(eni, field) for eni in one.enis] for host, one in others.items()}
        )
        for address, hosts in owners.items():
            found.append(_shared_problem("address", hosts, f"have the same {kind} {address}.", remedy))
    boots = {host: one.boot for host, one in others.items()}
    for ident, hosts in _owners_of_shared({host: [one.machine_id] for host, one in others.items()}).items():
        if len({boots[host] for host in hosts}) == len(hosts):  # containers of one machine may share it
            remedy = "rm /etc/machine-id; systemd-machine-id-setup  # on all but one of them, then reboot"
            cause = f"have the same machine-id {ident}: a DHCP server may give them one address."
            found.append(msgspec.structs.replace(_shared_problem("address", hosts, cause, remedy), level="warn"))
    return found


def _owners_of_shared(values: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the values that several hosts have, with these hosts."""
    owners: dict[str, list[str]] = {}
    for host, its in values.items():
        for value in dict.fromkeys(its):
            owners.setdefault(value, []).append(host)
    return {value: hosts for value, hosts in owners.items() if value and len(hosts) > 1}


def _shared_problem(check: str, hosts: Sequence[str], cause: str, remedy: str) -> Problem:
    cause = f"{', '.join(hosts)} {cause}"
    return Problem(check=check, level="fail", hosts=tuple(hosts), cause=cause, repair=(remedy,))


def _report_builds(states: Mapping[str, HostState]) -> list[Problem]:
    usual_wire, other_wires = find_outliers({host: state.wire for host, state in states.items()})
    _usual, others = find_outliers({host: (state.version, state.build) for host, state in states.items()})
    found = []
    for host in others:
        state = states[host]
        cause = f"It has {_build_text(state.version, state.build)}; {_most_common_build(states, host)}."
        if host in other_wires:
            cause += f" They have no wire version in common: {_range_text(state.wire)}"
            cause += f" here, {_range_text(usual_wire)} there." if usual_wire else " here."
        remedy = f"Install the same file on all hosts: harpctl install --plugin FILE -H {host}"
        found.append(_make_failure("wire" if host in other_wires else "build", host, cause, remedy))
    return found


def _most_common_build(states: Mapping[str, HostState], host: str) -> str:
    others = Counter((state.version, state.build) for name, state in states.items() if name != host)
    (version, build), count = others.most_common(1)[0]
    return f"{count} of {len(states)} hosts have {_build_text(version, build)}"


def _build_text(version: str, build: str) -> str:
    return f"HARP {version or 'unknown'}, build {build or 'unknown'}"


def _range_text(wire: Sequence[int]) -> str:
    return "-".join(map(str, dict.fromkeys(wire))) or "unknown"


def _report_mtus(states: Mapping[str, HostState]) -> list[Problem]:
    """Return a problem for each ENI with another MTU than those of the same number elsewhere."""
    found = []
    for lane in range(max((len(state.enis) for state in states.values()), default=0)):
        enis = {host: state.enis[lane] for host, state in states.items() if lane < len(state.enis)}
        usual, others = find_outliers({host: eni.mtu for host, eni in enis.items()})
        for host, mtu in others.items():
            name = enis[host].name
            if usual is None:
                values = ", ".join(f"{other} {eni.mtu}" for other, eni in enis.items())
                found.append(_make_failure("mtu", host, f"{name} has MTU {mtu}; they differ: {values}."))
                continue
            count = len(enis) - len(others)
            cause = f"{name} has MTU {mtu}, that of {count} other hosts is {usual}."
            found.append(_make_failure("mtu", host, cause, f"ip link set dev {name} mtu {usual}  # on {host}"))
    return found


def _report_slow_hosts(states: Mapping[str, HostState]) -> list[Problem]:
    """Return notes on what makes HARP slower, but does not stop it."""
    found = []
    for host, state in states.items():
        found += [_make_warning(one.id, host, one.cause, *one.repair) for one in state.warned]
        if not state.is_installed:
            cause = f"NCCL does not find HARP here; {state.plugin} was looked at."
            found.append(_make_warning("build", host, cause, f"harpctl install -H {host}"))
    _usual, others = find_outliers(
        {host: sum(eni.speed_mbps for eni in state.enis) for host, state in states.items()}
    )
    for host, speed in others.items():
        found.append(_make_warning("speed", host, f"Its ENIs have {speed} Mbit/s together, unlike others."))
    return found


# ---- faults between two hosts ----


def plan_probes(states: Mapping[str, HostState]) -> dict[str, tuple[PeerProbe, ...]]:
    """Return what each host is to probe: from each ENI to that of the same number of every other host."""
    return {
        host: tuple(
            PeerProbe(eni=eni.name, source=eni.address, target=there.address, mtu=eni.mtu, ports=there.tried)
            for name, other in states.items()
            if name != host
            for eni, there in zip(state.enis, other.enis, strict=False)
            if same_version(eni.address, there.address)
        )
        for host, state in states.items()
    }


def probe_problems(states: Mapping[str, HostState], probes: Mapping[str, Sequence[PeerProbe]]) -> list[Problem]:
    """Return the problems that the probes found."""
    places: dict[str, list[tuple[str, EniState]]] = {}
    for host, state in states.items():
        for eni in state.enis:
            places.setdefault(eni.address, []).append((host, eni))
    faults = []
    for source, found in probes.items():
        for probe in found:
            for target, eni in places[probe.target]:
                if target != source:
                    faults += _faults_of_probe(probe, source, target, eni)
    return attribute_faults(faults, list(states))


def _faults_of_probe(probe: PeerProbe, source: str, target: str, eni: EniState) -> list[Fault]:
    def fault(check: str, cause: str, *repair: str) -> Fault:
        return Fault(check=check, source=source, target=target, cause=cause, repair=repair)

    low, high = eni.ports
    allow = f"let UDP and TCP {low}-{high} from the other hosts in, in firewall and security group"
    result, found = probe.result, []
    tcp = [port for port, outcome in result.tcp.items() if outcome not in {ECHO, REFUSED}]
    udp = [port for port, outcome in result.ports.items() if outcome not in ANSWERED]
    if result.udp not in ANSWERED:
        silent = "no answer" if result.udp == SILENT else result.udp
        found.append(fault("udp", f"{eni.name} does not answer UDP: {silent}.", allow))
    elif udp:
        cause = f"{eni.name} does not answer on UDP {_ports_text(udp)} of {low}-{high}."
        found.append(fault("ports", cause, allow))
    if tcp:
        found.append(fault("tcp", f"{eni.name} does not answer on TCP {_ports_text(tcp)}.", allow))
    if result.full and result.full not in ANSWERED:
        how = "a router reports that they are too big" if result.full == TOO_BIG else "they are lost"
        cause = f"Packets of {probe.mtu} bytes do not arrive at {eni.name}: {how}; {result.passed} bytes pass."
        repair = f"ip link set dev {eni.name} mtu {result.passed}  # on all hosts, or raise it on the way"
        found.append(fault("mtu", cause, repair))
    return found


def _ports_text(ports: Sequence[int]) -> str:
    return f"port{'s' * (len(ports) != 1)} {', '.join(map(str, ports))}"


def attribute_faults(faults: Iterable[Fault], hosts: Sequence[str]) -> list[Problem]:
    """Return problems of the fewest hosts that explain all faults, then of the pairs that are left."""
    all_faults = list(faults)
    left, named = all_faults, []
    while left:
        partners = {host: _partners_of(host, left) for host in hosts}
        worst = max(hosts, key=lambda host: len(partners[host]))
        if len(partners[worst]) < 2:
            break
        named.append(worst)
        left = [one for one in left if worst not in {one.source, one.target}]
    # The number of hosts that each fails with: by losing large packets (True), and by anything else.
    counts = {
        (host, large): len(_partners_of(host, [one for one in all_faults if (one.check == "mtu") is large]))
        for host in named
        for large in (False, True)
    }
    found = []
    for host in named:
        its = [one for one in all_faults if _faulty_host(one, counts) == host]
        found += _problems_of_host(host, its, len(hosts) - 1)
    pairs = {(one.check, *sorted((one.source, one.target), key=hosts.index)): one for one in left}
    for (check, *pair), one in pairs.items():
        cause = f"From {one.source} to {one.target}: {one.cause}"
        found.append(Problem(check=check, level="fail", hosts=tuple(pair), cause=cause, repair=one.repair))
    return found


def _partners_of(host: str, faults: Iterable[Fault]) -> set[str]:
    """Return the hosts that one fails with."""
    ends = ((one.source, one.target) for one in faults)
    return {end for pair in ends if host in pair for end in pair} - {host}


def _faulty_host(fault: Fault, counts: Mapping[tuple[str, bool], int]) -> str:
    """Return the host that a fault is attributed to: with most others it loses large packets, or any."""
    ends = [host for host in (fault.target, fault.source) if (host, False) in counts]
    return max(ends, key=lambda host: counts[host, fault.check == "mtu"], default="")


def _problems_of_host(host: str, faults: Sequence[Fault], others: int) -> list[Problem]:
    """Return the problems of one host: of each check, the most frequent cause."""
    found = []
    for check in dict.fromkeys(one.check for one in faults):
        its = [one for one in faults if one.check == check]
        its = [one for one in its if one.target == host] or its
        counts = Counter(one.cause for one in its)
        usual = max(its, key=lambda one: counts[one.cause])
        partners = {one.source if one.target == host else one.target for one in its}
        where = "" if usual.target == host else f"From here to {usual.target}: "
        cause = f"{where}{usual.cause} The same holds with {len(partners)} of {others} hosts."
        found.append(_make_failure(check, host, cause, *usual.repair))
    return found


# ---- problems ----


def merge_notes(problems: Iterable[Problem]) -> list[Problem]:
    """Merge equal notes of several hosts."""
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


def failed_hosts(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Return the hosts that failed, each once."""
    failed = (host for one in problems if one.level == "fail" for host in one.hosts)
    return tuple(dict.fromkeys(failed))


def _make_failure(check: str, host: str, cause: str, *repair: str) -> Problem:
    return Problem(check=check, level="fail", hosts=(host,), cause=cause, repair=repair)


def _make_warning(check: str, host: str, cause: str, *repair: str) -> Problem:
    return msgspec.structs.replace(_make_failure(check, host, cause, *repair), level="warn")
