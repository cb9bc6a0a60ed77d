# SPDX-License-Identifier: Apache-2.0
"""Speeds of a cloud machine's ENIs, by the instance type, where their driver does not report them.

The kind comes from the metadata service, which is asked only where the firmware names the cloud, at an
address that needs no name server. The figures of ec2_speeds.json are the cloud's own, of the machine and of
a network card; of p5, p5e and p6 the share for IP (EFA's guide, "instances with multiple network cards").
"""

from __future__ import annotations

from importlib import resources

import msgspec

from harpctl.host.host import Host
from harpctl.network.metadata import VENDOR, Ec2


class Speed(msgspec.Struct, frozen=True):
    """Speed of a machine in Mbit/s: all together, and each network card."""

    total_mbps: int
    card_mbps: int


def known_speed(host: Host, enis: int, source: Ec2 | None = None) -> int:
    """Return the speed of each of so many ENIs in Mbit/s; 0 where it is unknown."""
    if host.read_word(VENDOR) != Ec2.vendor:
        return 0
    try:
        kind = (source or Ec2()).read_instance_type()
    except (OSError, ValueError):
        return 0
    speeds = (resources.files("harpctl.network") / "ec2_speeds.json").read_bytes()
    speed = msgspec.json.decode(speeds, type=dict[str, Speed]).get(kind)
    return min(speed.card_mbps, speed.total_mbps // max(enis, 1)) if speed else 0
