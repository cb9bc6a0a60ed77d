# SPDX-License-Identifier: Apache-2.0
"""BIG TCP: packets of up to 128 KiB between TCP and an ENI, where 64 KiB is Linux's default.

Fewer and larger packets go through the kernel; what is on the wire stays the same. Why 128 KiB:
docs/explanation/decisions/0016-payload-by-reference.md.

Rules, the first that fits decides:
1. A kernel without `tso_max_size` (before Linux 5.19) has no larger packets.
2. A size of 128 KiB or more stays. One below 64 KiB stays, because a driver or an operator lowered it.
3. Where arriving packets are forwarded (containers, routers), those received stay at 64 KiB: Linux cuts
   larger ones to the MTU for an interface with 64 KiB, and a stream over veth took 2.5 to 3.5 times as long.
4. A port of a bridge, a bond or Open vSwitch stays as it is: others send through it and filter there.
5. So does an ENI with an XDP program, or that AF_XDP is tried on: a program of one buffer makes veth's peer
   cut to the MTU, and one of several takes 17 pages at most.
6. So does what lies on another interface (a VLAN, a bridge, a bond): the one below would cut its packets.
A container's interfaces are left alone by who calls this: the way out of it may have 64 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from harpctl.change.steps import Group, SetSizes
from harpctl.facts import xdp
from harpctl.facts.model import Eni
from harpctl.host.link_sizes import SETTABLE, Sizes

NAME = "BIG TCP"
BYTES = 128 << 10
DEFAULT_BYTES = 64 << 10  # Linux's
SIMPLE_KINDS = {"", "veth"}


def sizes_to_raise(eni: Eni) -> Sizes:
    """Return the sizes to set of an ENI, in bytes, by rules 1 to 3; none where nothing is to be raised."""
    if eni.tso_max_size is None:
        return {}
    sizes, received = {}, 0 if eni.forwards else BYTES
    for name in SETTABLE:
        most = min(BYTES, eni.tso_max_size) if name.startswith("gso") else received
        have = getattr(eni, name)
        if have is not None and DEFAULT_BYTES <= have < most:
            sizes[name] = most
    return sizes


def reason_against(eni: Eni, driver: str) -> str:
    """Return why an ENI is left alone by rules 4 to 6, as what follows its name; "" where it is not.

    `driver` is the value of that key in its conf file.
    """
    if eni.is_port:
        return "is a port of a bridge, a bond or Open vSwitch"
    if eni.xdp_attached:
        return "has an XDP program"
    if xdp.is_tried(driver, eni.xdp):
        return "is for AF_XDP"
    return "" if eni.kind in SIMPLE_KINDS else f"is a {eni.kind}, which lies on another interface"


def plan_big_tcp(enis: Iterable[tuple[Eni, str]]) -> tuple[Group, list[str]]:
    """Plan the sizes of ENIs, each with its driver; return the group, and a note for each left alone."""
    steps, notes = [], []
    for eni, driver in enis:
        sizes = sizes_to_raise(eni)
        wanted = sizes_to_raise(msgspec.structs.replace(eni, forwards=False))
        reason = reason_against(eni, driver)
        if wanted and reason:
            notes.append(f"No BIG TCP for {eni.name}: it {reason}.")
            continue
        if sizes != wanted:
            notes.append(f"No BIG TCP for what {eni.name} receives: the host forwards packets from it.")
        if sizes:
            steps.append(SetSizes(interface=eni.name, sizes=sizes, why="fewer, larger packets of TCP"))
    return Group(name=NAME, steps=tuple(steps)), notes
