# SPDX-License-Identifier: Apache-2.0
"""The sizes of TCP's largest packets on an interface (GSO: sent, GRO: received), read and set by netlink.

`ip` sets those of IPv4 from iproute2 6.3 on, which is newer than most distributions have.
pyroute2 is imported where it is needed: it takes longer than all the rest of harpctl's start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

Message: TypeAlias = Any  # pyroute2 brings no types
Sizes: TypeAlias = "dict[str, int]"  # name, one of those below -> bytes

# Numbers of <linux/if_link.h>, because pyroute2 0.9 does not know all of them. The kernel takes them in this
# order: a gso_max_size or gro_max_size of up to 64 KiB sets the one of IPv4 too.
SETTABLE = {"gso_max_size": 41, "gro_max_size": 58, "gso_ipv4_max_size": 63, "gro_ipv4_max_size": 64}
TSO_MAX_SIZE = "tso_max_size"  # the most that the device takes, since Linux 5.19
ATTRIBUTES = {**SETTABLE, TSO_MAX_SIZE: 59}
NO_INDEX = 0x7FFFFFFF  # no interface has it: the kernel answers "No such device"
SEQUENCE = 1  # the number of the one request of a socket


class KernelLinks:
    """The interfaces of our network namespace; tests have some that are a table."""

    def sizes(self, name: str) -> Sizes:
        """Return the sizes that the kernel reports; none for an interface that isn't there."""
        from pyroute2 import IPRoute  # noqa: PLC0415
        from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

        try:
            with IPRoute() as route:
                found = [link for index in route.link_lookup(ifname=name) for link in route.get_links(index)]
        except (OSError, NetlinkError):
            return {}
        return sizes_of(found[0]) if found else {}

    def set_sizes(self, name: str, sizes: Mapping[str, int]) -> None:
        """Set sizes. Raises OSError; some may be set then."""
        from pyroute2 import IPRoute  # noqa: PLC0415
        from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST  # noqa: PLC0415
        from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415
        from pyroute2.netlink.rtnl import RTM_SETLINK  # noqa: PLC0415

        message = _message_class()()
        message["attrs"] = [(size, sizes[size]) for size in SETTABLE if size in sizes]
        try:
            with IPRoute() as route:
                message["index"] = next(iter(route.link_lookup(ifname=name)), NO_INDEX)
                route.put(message, msg_type=RTM_SETLINK, msg_flags=NLM_F_REQUEST | NLM_F_ACK, msg_seq=SEQUENCE)
                route.get(msg_seq=SEQUENCE)
        except NetlinkError as error:
            raise OSError(error.code, os.strerror(error.code), name) from None


def sizes_of(message: Message) -> Sizes:
    """Return the sizes in a link message of pyroute2; what the kernel lacks is left out."""
    own = _message_class()(message.data, message.offset)
    own.decode()
    found = {name: own.get_attr(name) for name in ATTRIBUTES}
    return {name: value for name, value in found.items() if value is not None}


def _message_class() -> Message:
    """Return a link message of these attributes alone."""
    from pyroute2.netlink import nlmsg  # noqa: PLC0415
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg  # noqa: PLC0415

    nla_map = tuple((number, name, "uint32") for name, number in ATTRIBUTES.items())
    return type("SizesMessage", (nlmsg,), {"fields": ifinfmsg.fields, "nla_map": nla_map})
