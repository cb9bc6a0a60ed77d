# SPDX-License-Identifier: Apache-2.0
"""The options that describe a lab: those of `harpctl lab up` and of `harpctl lab bench`."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

import typer

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

Ranks = Annotated[int, typer.Option(min=2, max=HOSTS_MAX, help="Hosts, one rank each.", rich_help_panel=LAB)]


@dataclasses.dataclass(frozen=True)
class LabOptions:
    """The options of a lab."""

    ranks: Ranks = 2
    enis: Annotated[
        str, typer.Option(help="ENIs of each host, or one number per host: 2,8.", rich_help_panel=LAB)
    ] = "1"
    subnets: Annotated[
        Subnets,
        typer.Option(
            help="each: ENIs of one number share a subnet. routed: with a router between these. one: all "
            "are in one.",
            rich_help_panel=LAB,
        ),
    ] = Subnets.EACH
    mtu: Annotated[int, typer.Option(help="MTU in bytes.", rich_help_panel=LAB)] = 1500
    cap: Annotated[
        str | None,
        typer.Option(
            help="Mbit/s per ENI and direction, or one number per ENI: 1000,4000.", rich_help_panel=LAB
        ),
    ] = None
    flow_cap: Annotated[
        float | None, typer.Option(help="Mbit/s per flow (5-tuple).", rich_help_panel=LAB)
    ] = None
    queue_ms: Annotated[
        float, typer.Option(help="The longest wait for a cap before packets drop.", rich_help_panel=LAB)
    ] = QUEUE_MS
    queue_us: Annotated[
        float | None,
        typer.Option(
            help=f"A short queue before an ENI's cap, in microseconds of it: at least {QUEUE_MIN_US:g} and a "
            "packet. Superframes are cut there.",
            rich_help_panel=LAB,
        ),
    ] = None
    police: Annotated[
        bool,
        typer.Option(
            "--police",
            help="Drop what exceeds an ENI's cap and a burst, instead of queueing it; at a switch, where "
            "senders have cut superframes.",
            rich_help_panel=LAB,
        ),
    ] = False
    police_burst: Annotated[
        float | None,
        typer.Option(
            help=f"With --police: the burst. Default: {POLICE_BURST_KIB:g}.",
            metavar="KIB",
            rich_help_panel=LAB,
        ),
    ] = None
    loss: Annotated[
        str,
        typer.Option(
            metavar="PERCENT",
            help="Random loss in percent on arrival: of superframes, with --offload off of packets.",
            rich_help_panel=LAB,
        ),
    ] = "0"
    offload: Annotated[
        Offload,
        typer.Option(
            help="stock: superframes cross whole. segment: cut by the sender, merged by the receiver. "
            "off: cut, not merged.",
            rich_help_panel=LAB,
        ),
    ] = Offload.STOCK
    rps: Annotated[
        bool,
        typer.Option(
            "--rps",
            help="Handle what arrives at a host on a core of its own; ranks keep off it.",
            rich_help_panel=LAB,
        ),
    ] = False
    unprivileged: Annotated[
        bool,
        typer.Option(
            "--unprivileged",
            help="Run ranks without capabilities, and with the default limits of socket buffers.",
            rich_help_panel=LAB,
        ),
    ] = False
    congestion: Annotated[
        str, typer.Option(help="TCP congestion control in the lab.", rich_help_panel=LAB)
    ] = "cubic"
    tcp_buffer: Annotated[
        int | None,
        typer.Option(
            help="Bound the buffers of each TCP socket in the lab. Default: as on this machine.",
            metavar="KIB",
            rich_help_panel=LAB,
        ),
    ] = None
    big_tcp: Annotated[
        bool,
        typer.Option(
            "--big-tcp",
            help="Let TCP use packets of 128 KiB on the lab's links, as `harpctl setup` does on ENIs.",
            rich_help_panel=LAB,
        ),
    ] = False

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
