# SPDX-License-Identifier: Apache-2.0
"""How fast the ENIs of a cloud's machine are, where their driver does not report it: by the instance type.

The kind comes from the metadata service, which is asked only where the firmware names the cloud, at an
address that needs no name server. The figures are the cloud's own, of the machine and of a network card.
"""

from __future__ import annotations

import msgspec

from harpctl.host.host import Host
from harpctl.network.metadata import VENDOR, Ec2


class Speed(msgspec.Struct, frozen=True):
    """What a machine carries in Mbit/s: all together, and each network card."""

    total_mbps: int
    card_mbps: int


def _gbps(total: int, cards: int = 1, card: int = 0) -> Speed:
    return Speed(total * 1000, (card or total // cards) * 1000)


# Of p5, p5e and p6 the share that is for IP (EFA's guide, "instances with multiple network cards").
EC2_SPEEDS = {
    "p3.8xlarge": _gbps(10),
    "p3.16xlarge": _gbps(25),
    "p3dn.24xlarge": _gbps(100),
    "p4d.24xlarge": _gbps(400, 4),
    "p4de.24xlarge": _gbps(400, 4),
    "p5.48xlarge": _gbps(800, card=100),
    "p5e.48xlarge": _gbps(800, card=100),
    "p6-b200.48xlarge": _gbps(1600, card=200),
    "p6-b300.48xlarge": _gbps(3870, card=220),
    "g4dn.8xlarge": _gbps(50),
    "g4dn.12xlarge": _gbps(50),
    "g4dn.16xlarge": _gbps(50),
    "g4dn.metal": _gbps(100),
    "g5.8xlarge": _gbps(25),
    "g5.12xlarge": _gbps(40),
    "g5.16xlarge": _gbps(25),
    "g5.24xlarge": _gbps(50),
    "g5.48xlarge": _gbps(100),
    "g6.8xlarge": _gbps(25),
    "g6.12xlarge": _gbps(40),
    "g6.16xlarge": _gbps(25),
    "g6.24xlarge": _gbps(50),
    "g6.48xlarge": _gbps(100),
    "g6e.8xlarge": _gbps(25),
    "g6e.12xlarge": _gbps(100),
    "g6e.16xlarge": _gbps(35),
    "g6e.24xlarge": _gbps(200, 2),
    "g6e.48xlarge": _gbps(400, 4),
}


def known_speed(host: Host, enis: int, source: Ec2 | None = None) -> tuple[int, str]:
    """Return the speed of each of so many ENIs in Mbit/s, and the kind of the machine; 0 where unknown."""
    if host.read_word(VENDOR) != Ec2.vendor:
        return 0, ""
    try:
        kind = (source or Ec2()).instance_type()
    except (OSError, ValueError):
        return 0, ""
    speed = EC2_SPEEDS.get(kind)
    return (min(speed.card_mbps, speed.total_mbps // max(enis, 1)) if speed else 0), kind
