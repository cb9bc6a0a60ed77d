# SPDX-License-Identifier: Apache-2.0
"""The options that describe a lab: those of `harpctl lab up` and of `harpctl lab bench`."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import click

from harplab.grouped import Values, declare_option
from harplab.lab.numbers import parse_caps, parse_enis, parse_loss, parse_police
from harplab.lab.spec import (
    HOSTS_MAX,
    POLICE_BURST_KIB,
    QUEUE_MIN_US,
    QUEUE_MS,
    RPS_CORES_MAX,
    LabSpec,
    Offload,
    Subnets,
)

LAB = "Lab"

RANKS: dict[str, Any] = {
    "type": click.IntRange(2, HOSTS_MAX),
    "heading": LAB,
    "help": "Hosts, one rank each.",
}


@dataclasses.dataclass(frozen=True)
class LabOptions:
    """The options of a lab."""

    ranks: int = declare_option(2, **RANKS)
    enis: str = declare_option("1", heading=LAB, help="ENIs of each host, or one number per host: 2,8.")
    subnets: Subnets = declare_option(
        Subnets.EACH,
        type=Values(Subnets),
        heading=LAB,
        help="each: ENIs of one number share a subnet. routed: with a router between these. one: all are in one.",
    )
    mtu: int = declare_option(1500, heading=LAB, help="MTU in bytes.")
    cap: str | None = declare_option(
        None, heading=LAB, help="Mbit/s per ENI and direction, or one number per ENI: 1000,4000."
    )
    flow_cap: float | None = declare_option(None, type=float, heading=LAB, help="Mbit/s per flow (5-tuple).")
    queue_ms: float = declare_option(QUEUE_MS, heading=LAB, help="The longest wait for a cap before packets drop.")
    queue_us: float | None = declare_option(
        None,
        type=float,
        heading=LAB,
        help=f"A short queue before an ENI's cap, in microseconds of it: at least {QUEUE_MIN_US:g} and a "
        "packet. Superframes are cut there.",
    )
    police: bool = declare_option(
        False,
        heading=LAB,
        help="Drop what exceeds an ENI's cap and a burst, instead of queueing it; at a switch, where "
        "senders have cut superframes.",
    )
    police_burst: float | None = declare_option(
        None,
        metavar="KIB",
        type=float,
        heading=LAB,
        help=f"With --police: the burst. Default: {POLICE_BURST_KIB:g}.",
    )
    loss: str = declare_option(
        "0",
        metavar="PERCENT",
        heading=LAB,
        help="Random loss in percent on arrival: of superframes, with --offload off of packets.",
    )
    offload: Offload = declare_option(
        Offload.STOCK,
        type=Values(Offload),
        heading=LAB,
        help="stock: superframes cross whole. segment: cut by the sender, merged by the receiver. "
        "off: cut, not merged.",
    )
    rps: bool = declare_option(
        False,
        heading=LAB,
        help="Handle what arrives at a host on a core of its own; ranks keep off it.",
    )
    unprivileged: bool = declare_option(
        False,
        heading=LAB,
        help="Run ranks without capabilities, and with the default limits of socket buffers.",
    )
    congestion: str = declare_option("cubic", heading=LAB, help="TCP congestion control in the lab.")
    tcp_buffer: int | None = declare_option(
        None,
        metavar="KIB",
        type=int,
        heading=LAB,
        help="Bound the buffers of each TCP socket in the lab. Default: as on this machine.",
    )
    big_tcp: bool = declare_option(
        False,
        heading=LAB,
        help="Let TCP use packets of 128 KiB on the lab's links, as `harpctl setup` does on ENIs.",
    )

    def spec(self, *, switch: bool) -> LabSpec:
        """Return the lab that is described. Raises HarpError for what no lab has."""
        most, each = parse_enis(self.enis, self.ranks)
        spec = LabSpec(
            hosts=self.ranks,
            enis=most,
            host_enis=each,
            switch=switch,
            subnets=self.subnets,
            mtu_bytes=self.mtu,
            cap_mbps=parse_caps(self.cap),
            flow_cap_mbps=self.flow_cap,
            queue_ms=self.queue_ms,
            queue_us=self.queue_us,
            police_burst_kib=parse_police(police=self.police, burst_kib=self.police_burst),
            loss_share=parse_loss(self.loss),
            offload=self.offload,
            rps_cores=min(os.cpu_count() or 1, RPS_CORES_MAX) if self.rps else 0,
            unprivileged=self.unprivileged,
            congestion=self.congestion,
            tcp_buffer_kib=self.tcp_buffer,
            big_tcp=self.big_tcp,
        )
        spec.check()
        return spec
