# SPDX-License-Identifier: Apache-2.0
"""The data of preflight: hosts, problems, rates, the report."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import msgspec

from harpctl.doctor.peer_probes import PeerProbe

SOCKET, NONE = "socket", "none"  # what HARP is compared with, beside the file of a plugin


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all of them."""


Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Ports = tuple[Port, Port]


def check_ports(ports: Ports) -> None:
    """Refuse a range that is reversed. Raises ValueError."""
    if ports[0] > ports[1]:
        raise ValueError(f"the port range {ports[0]}-{ports[1]} is reversed")


class PreflightOptions(Struct, frozen=True, kw_only=True):
    """The options of one preflight."""

    port: int
    time_s: float
    against: str
    nccl: str  # a library on the hosts; "" where they look for one themselves
    sizes: tuple[int, ...]
    within_s: float

    @property
    def other(self) -> str:
        """Return what HARP is compared with, for a person."""
        return "NCCL's Socket" if self.against == SOCKET else self.against


class EniState(Struct, frozen=True, kw_only=True):
    """One ENI of a conf file that is there. Its place among all is its device number with devices = enis."""

    name: str
    address: str
    mtu: int
    speed_mbps: int  # 0: unknown
    ports: Ports  # the lowest and the highest that HARP may use
    tried: tuple[Port, ...]  # those of them that the other hosts try, none of them in use
    mac: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no address and no range. Raises ValueError."""
        ipaddress.ip_address(self.address)
        check_ports(self.ports)


class HostFinding(Struct, frozen=True, kw_only=True):
    """A finding of the host's own doctor."""

    id: str
    cause: str
    repair: tuple[str, ...] = ()


class HostState(Struct, frozen=True, kw_only=True):
    """The state of a host, as its agent reports it."""

    harpctl: str  # its version
    plugin: str  # the file that is measured: the one that NCCL takes, else the one that harpctl brings
    is_installed: bool  # NCCL takes that file
    version: str
    build: str
    wire: tuple[int, ...]  # the oldest and the newest wire version; () unknown
    perf: str  # harp-perf; "" where it is missing
    nccl: str  # an NCCL whose sockets can be measured; "" where there is none
    ephemeral: Ports  # from which its kernel chooses ports
    boot: str = ""  # its kernel's boot_id, the same for containers of one machine
    network: str = ""  # its network namespace
    machine_id: str = ""  # the id in /etc/machine-id, from which DHCP clients make what they are known by
    enis: tuple[EniState, ...] = ()
    failed: tuple[HostFinding, ...] = ()
    warned: tuple[HostFinding, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no range. Raises ValueError."""
        check_ports(self.ephemeral)


class ProbeRequest(Struct, frozen=True, kw_only=True, tag="probe"):
    """A probe that a host is asked for; it answers with their results, in the same order."""

    port: int
    probes: tuple[PeerProbe, ...]


class RateRequest(Struct, frozen=True, kw_only=True, tag="rate"):
    """A run of harp-perf on each of the first ENIs at once; a host answers with an outcome for each."""

    rank: int  # 0 or 1
    meetings: tuple[str, ...]  # ADDRESS:PORT where the two ranks meet, for each ENI
    time_s: float
    limit_s: float  # the longest that a run may take


Request = ProbeRequest | RateRequest


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a rank's harp-perf."""

    report: str = ""  # JSON, of rank 0
    error: str = ""  # "" when it succeeded


Level = Literal["fail", "warn"]


class Problem(Struct, frozen=True, kw_only=True):
    """A problem of one host, or of the two of a pair where it is not the fault of one of them."""

    check: str
    level: Level
    hosts: tuple[str, ...]
    cause: str
    repair: tuple[str, ...] = ()


class Rate(Struct, frozen=True, kw_only=True):
    """The rate from one host to another, with as much going the other way."""

    source: str
    target: str
    eni: str  # the source's interface
    lane: int  # the ENI's number on both hosts
    gbps: float


class Comparison(Struct, frozen=True, kw_only=True):
    """One message size between two hosts: HARP and what it is measured against."""

    bytes: int
    harp_gbps: float
    other_gbps: float
    ratio: float  # the ratio of the medians
    least: float
    greatest: float


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer to whether to use HARP on these hosts."""

    use: bool | None  # None: it was not compared
    text: str
    sizes: tuple[int, ...] = ()  # the message sizes at which HARP is faster
    gain: tuple[float, float] | None = None  # the least and the greatest ratio of these


class Measured(Struct, frozen=True, kw_only=True):
    """Measurements of the lab."""

    worth: Verdict  # what HARP is worth on hosts that are all fit, with the reason
    problems: tuple[Problem, ...] = ()
    rounds: int = 0  # the rounds of rates
    rates: tuple[Rate, ...] = ()
    pair: tuple[str, ...] = ()  # the two hosts of `compared`
    compared: tuple[Comparison, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """The output of `preflight --json`."""

    ok: bool
    verdict: Verdict
    problems: tuple[Problem, ...]
    hosts: dict[str, HostState]
    rounds: int = 0  # the rounds of rates
    rates: tuple[Rate, ...] = ()
    pair: tuple[str, ...] = ()  # the two hosts of `compared`
    compared: tuple[Comparison, ...] = ()
    seconds: float = 0.0
