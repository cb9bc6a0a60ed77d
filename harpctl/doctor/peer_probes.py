# SPDX-License-Identifier: Apache-2.0
"""Probes from this host's ENIs to a peer's addresses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from harpctl.confs.conf import Conf
from harpctl.doctor.machine import Machine
from harpctl.doctor.path_probe import ECHO, ProbeResult
from harpctl.doctor.port_sweep import Sweep
from harpctl.facts.model import Eni
from harpctl.host.host import Host
from harpctl.ip import first_address, same_version

EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
EPHEMERAL_DEFAULT = (32768, 60999)
MTU_DEFAULT = 1500
PARALLEL = 64
SWEEPS_S = 90.0


class PeerProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe from one ENI's address to one of the peer's, and its result."""

    eni: str
    source: str
    target: str
    mtu: int
    ports: tuple[int, ...]  # to be tried: the lowest and the highest that HARP may use, and some between
    result: ProbeResult = ProbeResult(udp="")
    sweep: Sweep | None = None  # all ports from the lowest to the highest; None: not tried

    @property
    def name(self) -> str:
        """Return the name of the probe for messages."""
        return f"{self.eni} ({self.source}) to {self.target}"


def plan_probes(
    pairs: Iterable[tuple[Conf, Eni]], targets: Sequence[str], ports: tuple[int, int]
) -> list[PeerProbe]:
    """Return the probes from the ENIs of conf files to addresses; `ports` where a file names no range."""
    found = []
    for conf, eni in pairs:
        source = conf.address or first_address(eni.addresses)
        mtu = conf.mtu or eni.mtu or MTU_DEFAULT
        found += [
            PeerProbe(eni=eni.name, source=source, target=target, mtu=mtu, ports=conf.ports or ports)
            for target in targets
            if source and same_version(source, target)
        ]
    return found


def run_probes(machine: Machine, port: int, probes: Iterable[PeerProbe]) -> tuple[PeerProbe, ...]:
    """Run all probes, many at once; each may take 10 s without an answer."""

    def probed(probe: PeerProbe) -> PeerProbe:
        found = machine.probe_path(probe.source, probe.target, port, probe.mtu, probe.ports)
        return msgspec.structs.replace(probe, result=found)

    with ThreadPoolExecutor(PARALLEL) as pool:
        return tuple(pool.map(probed, probes))


def run_sweeps(machine: Machine, port: int, probes: Iterable[PeerProbe]) -> tuple[PeerProbe, ...]:
    """Try all ports where a responder answered, pair by pair of addresses, for SWEEPS_S at most."""
    end = time.monotonic() + SWEEPS_S
    done = []
    for probe in probes:
        left = end - time.monotonic()
        if probe.result.udp == ECHO and left > 0:
            ends = (probe.ports[0], probe.ports[-1])
            found = machine.sweep_ports(probe.source, probe.target, port, ends, left)
            done.append(msgspec.structs.replace(probe, sweep=found))
        elif probe.result.udp == ECHO:
            late = Sweep(why_not=f"{SWEEPS_S:g} s were used up")
            done.append(msgspec.structs.replace(probe, sweep=late))
        else:
            done.append(probe)
    return tuple(done)


def ephemeral_ports(host: Host) -> tuple[int, int]:
    """Return the range from which the kernel chooses ports."""
    words = host.read_word(EPHEMERAL).split()
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return int(words[0]), int(words[1])
    return EPHEMERAL_DEFAULT
