# SPDX-License-Identifier: Apache-2.0
"""Command-line options that describe a lab: those of `harpctl lab up` and of `harpctl bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from harpctl.testbed.lab.spec import POLICE_BURST_KIB, QUEUE_MIN_US, Offload, Subnets

LAB = "Lab"

Enis = Annotated[
    str, typer.Option(help="ENIs of each host, or one number per host: 2,8.", rich_help_panel=LAB)
]
Cap = Annotated[
    str | None,
    typer.Option(help="Mbit/s per ENI and direction, or one number per ENI: 1000,4000.", rich_help_panel=LAB),
]
FlowCap = Annotated[float | None, typer.Option(help="Mbit/s per flow (5-tuple).", rich_help_panel=LAB)]
QueueUs = Annotated[
    float | None,
    typer.Option(
        help=f"A short queue before an ENI's cap, in microseconds of it: at least {QUEUE_MIN_US:g} and a "
        "packet. Superframes are cut there.",
        rich_help_panel=LAB,
    ),
]
Police = Annotated[
    bool,
    typer.Option(
        "--police",
        help="Drop what exceeds an ENI's cap and a burst, instead of queueing it; at a switch, where senders "
        "have cut superframes.",
        rich_help_panel=LAB,
    ),
]
PoliceBurst = Annotated[
    float | None,
    typer.Option(
        help=f"With --police: the burst. Default: {POLICE_BURST_KIB:g}.", metavar="KIB", rich_help_panel=LAB
    ),
]
Loss = Annotated[
    str,
    typer.Option(
        metavar="PERCENT",
        help="Random loss in percent on arrival: of superframes, with --offload off of packets.",
        rich_help_panel=LAB,
    ),
]
Mtu = Annotated[int, typer.Option(help="MTU in bytes.", rich_help_panel=LAB)]
OffloadBy = Annotated[
    Offload,
    typer.Option(
        help="stock: superframes cross whole. segment: cut by the sender, merged by the receiver. "
        "off: cut, not merged.",
        rich_help_panel=LAB,
    ),
]
SubnetsOf = Annotated[
    Subnets,
    typer.Option(
        help="each: ENIs of one number share a subnet. routed: with a router between these. one: all are in "
        "one.",
        rich_help_panel=LAB,
    ),
]
Congestion = Annotated[str, typer.Option(help="TCP congestion control in the lab.", rich_help_panel=LAB)]
TcpBuffer = Annotated[
    int | None,
    typer.Option(
        help="Bound the buffers of each TCP socket in the lab. Default: as on this machine.",
        metavar="KIB",
        rich_help_panel=LAB,
    ),
]
BigTcp = Annotated[
    bool,
    typer.Option(
        "--big-tcp",
        help="Let TCP use packets of 128 KiB on the lab's links, as `harpctl setup` does on ENIs.",
        rich_help_panel=LAB,
    ),
]
