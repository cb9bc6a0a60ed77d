# SPDX-License-Identifier: Apache-2.0
"""Describes a lab as data, with the names and addresses in it; nothing is planned or run here.

An ENI's address is 10.77.<eni>.<host + 1>, whatever its subnet.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from harpctl.errors import ExitCode, HarpError

HOSTS_MAX = 64
ENIS_MAX = 16
QUEUES_MAX = 16
MTU_MIN_BYTES = 576
MTU_MAX_BYTES = 65535
QUEUE_MS = 10.0
QUEUE_MAX_MS = 1000.0
QUEUE_MIN_US = 20.0  # shorter ones are shorter than what the kernel's timers are late
ETHERNET_BYTES = 14  # the header of a packet, which a cap counts
POLICE_BURST_KIB = 64.0
POLICE_BURST_MAX_KIB = 1 << 20
TCP_BUFFER_MIN_KIB = 4
TCP_BUFFER_DEFAULT_KIB = 16  # with which a socket begins
TCP_BUFFER_MAX_KIB = 1 << 20
BIG_TCP_BYTES = 128 << 10  # as `harpctl setup` sets it
RPS_CORES_MAX = 32  # bits of one word of rps_cpus


class Offload(str, enum.Enum):
    """The place where superframes are cut into packets, and whether anybody merges them again."""

    STOCK = "stock"  # nobody: veth hands superframes over whole
    SEGMENT = "segment"  # the sender's kernel cuts, the receiver's kernel merges again: like a plain NIC
    OFF = "off"  # the sender's kernel cuts, the receiver gets each packet by itself: loss falls on packets


class Subnets(str, enum.Enum):
    """The ENIs that reach each other."""

    EACH = "each"  # ENI n of all hosts share a subnet, and nothing leads out of it
    ROUTED = "routed"  # the same, with a router between the subnets: every ENI reaches every other
    ONE = "one"  # all ENIs of all hosts are in one subnet, as in most clouds


@dataclasses.dataclass(frozen=True)
class LabSpec:
    """The description of a lab.

    With `rps_cores`, what arrives on host i's ENIs is handled on core i modulo that number (receive packet
    steering), as after a NIC's interrupt; without, on the sender's core, inside its system call.
    With `unprivileged`, what runs on a host has no capability, and socket buffers of a kernel's defaults.
    """

    hosts: int = 2
    enis: int = 1  # the ENIs of the host that has the most
    mtu_bytes: int = 1500
    offload: Offload = Offload.STOCK
    cap_mbps: float | tuple[float, ...] | None = None  # the cap of each ENI, or of ENI 0, 1, ...; both directions
    flow_cap_mbps: float | None = None
    loss_share: float = 0.0  # the loss of what arrives at an ENI
    congestion: str = "cubic"
    tcp_buffer_kib: int | None = None  # the most buffer of a TCP socket, each way; None: as on this machine
    big_tcp: bool = False  # TCP may use packets of 128 KiB on every link; else of 64 KiB
    switch: bool = False
    queues: int = 1
    rps_cores: int = 0
    host_enis: tuple[int, ...] = ()  # how many each host has, where they differ
    subnets: Subnets = Subnets.EACH
    queue_ms: float = QUEUE_MS  # how long a packet waits for a cap at most, before it is dropped
    queue_us: float | None = None  # the same for an ENI's cap, and exactly; superframes are cut there
    police_burst_kib: float | None = None  # an ENI's cap drops instead of queueing, beyond a burst of this
    unprivileged: bool = False

    @property
    def has_fabric(self) -> bool:
        """Return whether bridges join the hosts."""
        has_reason = self.switch or self.is_policed or self.subnets is not Subnets.EACH
        return has_reason or self.hosts > 2 or bool(self.host_enis)

    @property
    def is_policed(self) -> bool:
        """Return whether caps drop instead of queueing: at the switch, packet by packet."""
        return self.police_burst_kib is not None

    @property
    def cutting(self) -> Offload:
        """Return who cuts superframes into packets; before a policer somebody always does."""
        return Offload.SEGMENT if self.is_policed and self.offload is Offload.STOCK else self.offload

    def eni_count(self, host: int) -> int:
        """Return how many ENIs a host has."""
        return self.host_enis[host] if self.host_enis else self.enis

    def cap_of(self, eni: int) -> float | None:
        """Return the cap of the hosts' ENI of that number."""
        return self.cap_mbps[eni] if isinstance(self.cap_mbps, tuple) else self.cap_mbps

    @property
    def frame_bytes(self) -> int:
        """Return the length of the largest packet on a link."""
        return self.mtu_bytes + ETHERNET_BYTES

    @property
    def is_capped(self) -> bool:
        """Return whether anything is capped."""
        return self.cap_mbps is not None or self.flow_cap_mbps is not None

    def check(self) -> None:
        """Raise the HarpError that names the first value out of its range."""
        caps = self.cap_mbps if isinstance(self.cap_mbps, tuple) else (self.cap_mbps,)
        counts = self.host_enis or (self.enis,)
        kib = self.tcp_buffer_kib
        rules = [
            (2 <= self.hosts <= HOSTS_MAX, f"a lab has 2 to {HOSTS_MAX} hosts, not {self.hosts}"),
            *((1 <= n <= ENIS_MAX, f"a lab's host has 1 to {ENIS_MAX} ENIs, not {n}") for n in counts),
            (
                not self.host_enis or len(counts) == self.hosts,
                f"{len(counts)} numbers of ENIs do not fit {self.hosts} hosts: give one per host or one",
            ),
            (max(counts) == self.enis, f"the most ENIs of a host are {max(counts)}, not {self.enis}"),
            (
                MTU_MIN_BYTES <= self.mtu_bytes <= MTU_MAX_BYTES,
                f"an MTU is {MTU_MIN_BYTES} to {MTU_MAX_BYTES} bytes, not {self.mtu_bytes}",
            ),
            (
                1 <= self.queues <= QUEUES_MAX and (self.queues == 1 or not self.has_fabric),
                f"an ENI has 1 to {QUEUES_MAX} queues, not {self.queues}; 1 where a fabric joins the hosts",
            ),
            (
                0 <= self.rps_cores <= RPS_CORES_MAX,
                f"arriving packets are steered to 1 to {RPS_CORES_MAX} cores, not {self.rps_cores}",
            ),
            (
                0.0 <= self.loss_share < 1.0,
                f"a loss is 0 up to (not with) 100 %, not {self.loss_share * 100:g} %",
            ),
            *((cap is None or cap >= 1, f"a cap is at least 1 Mbit/s, not {cap}") for cap in caps),
            (
                not isinstance(self.cap_mbps, tuple) or len(caps) == self.enis,
                f"{len(caps)} caps do not fit {self.enis} ENIs: give one per ENI or one",
            ),
            (
                self.flow_cap_mbps is None or self.flow_cap_mbps >= 1,
                f"a flow's cap is at least 1 Mbit/s, not {self.flow_cap_mbps}",
            ),
            (
                kib is None or TCP_BUFFER_MIN_KIB <= kib <= TCP_BUFFER_MAX_KIB,
                f"a TCP buffer has {TCP_BUFFER_MIN_KIB} to {TCP_BUFFER_MAX_KIB} KiB, not {kib}",
            ),
            (
                1 <= self.queue_ms <= QUEUE_MAX_MS,
                f"a queue holds 1 to {QUEUE_MAX_MS:.0f} ms, not {self.queue_ms:g}",
            ),
            *self._short_queue_rules([cap for cap in caps if cap is not None]),
        ]
        for holds, message in rules:
            if not holds:
                raise HarpError(f"{message}.", exit_code=ExitCode.USAGE)

    def _short_queue_rules(self, caps: Sequence[float]) -> list[tuple[bool, str]]:
        """List what has to hold where a cap queues for microseconds, or not at all."""
        queue_us, burst_kib = self.queue_us, self.police_burst_kib
        if queue_us is None and burst_kib is None:
            return []
        option = "--queue-us" if queue_us is not None else "--police"
        rules = [
            (queue_us is None or burst_kib is None, "a cap has a queue (--queue-us) or polices (--police)"),
            (bool(caps), f"{option} takes a cap of the ENIs (--cap)"),
            (
                self.flow_cap_mbps is None,
                f"{option} is for the cap of an ENI; a flow's (--flow-cap) queues superframes",
            ),
        ]
        packets = f"packets of {self.frame_bytes} bytes"
        for cap in caps if queue_us is not None else []:
            least_us, most_us = least_queue_us(self.frame_bytes, cap), 1000 * QUEUE_MAX_MS
            bounds = f"holds {least_us:.0f} to {most_us:.0f} us"
            message = f"at {cap:g} Mbit/s a queue for {packets} {bounds}, not {queue_us:g}"
            rules.append((queue_us is None or least_us <= queue_us <= most_us, message))
        if burst_kib is not None:
            least_kib = 2 * self.frame_bytes / 1024
            bounds = f"is {least_kib:.1f} to {POLICE_BURST_MAX_KIB} KiB"
            message = f"the burst of a policer for {packets} {bounds}, not {burst_kib:g}"
            rules.append((least_kib <= burst_kib <= POLICE_BURST_MAX_KIB, message))
        return rules

    def _describe_caps(self) -> list[str]:
        parts = []
        if self.cap_mbps is not None:
            caps = self.cap_mbps if isinstance(self.cap_mbps, tuple) else (self.cap_mbps,)
            parts.append(f"cap {', '.join(f'{cap:g}' for cap in caps)} Mbit/s per ENI")
        if self.queue_us is not None:
            parts.append(f"queues of {self.queue_us:g} us")
        if self.police_burst_kib is not None:
            parts.append(f"policed with a burst of {self.police_burst_kib:g} KiB")
        if self.flow_cap_mbps is not None:
            parts.append(f"cap {self.flow_cap_mbps:g} Mbit/s per flow")
        return parts

    def describe(self) -> str:
        """Return in one line what the lab is, for the head of a table."""
        eni = "1 ENI each" if self.enis == 1 else f"{self.enis} ENIs each"
        if self.host_enis:
            eni = f"{' and '.join(str(count) for count in self.host_enis)} ENIs"
        parts = [f"{self.hosts} hosts", eni, f"MTU {self.mtu_bytes}", f"offload {self.cutting.value}"]
        if self.subnets is not Subnets.EACH:
            parts.append(f"subnets {self.subnets.value}")
        parts += self._describe_caps()
        if self.loss_share:
            unit = "packets" if self.offload is Offload.OFF else "superframes"
            parts.append(f"loss {self.loss_share * 100:g} % of {unit}")
        if self.rps_cores:
            parts.append(f"RPS over {self.rps_cores} cores")
        if self.unprivileged:
            parts.append("ranks without privileges")
        parts.append(self.congestion)
        if self.tcp_buffer_kib is not None:
            parts.append(f"TCP buffers of {self.tcp_buffer_kib} KiB")
        if self.big_tcp:
            parts.append("BIG TCP")
        return ", ".join(parts)


def least_queue_us(frame_bytes: int, cap_mbps: float) -> float:
    """Return the shortest queue of a cap: it holds a packet, and is not shorter than timers are late."""
    return max(QUEUE_MIN_US, frame_bytes * 8 / cap_mbps)


def eni_name(eni: int) -> str:
    """Name an ENI inside its host."""
    return f"eni{eni}"


def eni_address(host: int, eni: int) -> str:
    """Return the IPv4 address of a host's ENI."""
    return f"10.77.{eni}.{host + 1}"


def host_names(spec: LabSpec, prefix: str) -> list[str]:
    """Return the namespaces that stand for hosts."""
    return [f"{prefix}h{host}" for host in range(spec.hosts)]


def fabric_name(prefix: str) -> str:
    """Name the namespace of the bridges."""
    return f"{prefix}fabric"


def bridge_name(spec: LabSpec, eni: int) -> str:
    """Name the bridge that ENIs of this number are joined by."""
    return "br0" if spec.subnets is Subnets.ONE else f"br{eni}"


def port_name(host: int, ifname: str) -> str:
    """Name the port of the fabric that leads to a host's ENI."""
    return f"h{host}{ifname}"


def lab_namespaces(spec: LabSpec, prefix: str) -> list[str]:
    """Return every namespace of the lab, hosts first."""
    return host_names(spec, prefix) + ([fabric_name(prefix)] if spec.has_fabric else [])
