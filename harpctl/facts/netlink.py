# SPDX-License-Identifier: Apache-2.0
"""The interfaces of our own network namespace, as the running kernel reports them by netlink and ethtool.

pyroute2 is imported where it is needed: it takes longer than all the rest of harpctl's start.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection
from typing import Any, TypeAlias

import msgspec

from harpctl.facts.addresses import Addresses, Default
from harpctl.facts.model import Eni
from harpctl.host.link_sizes import sizes_of

Message: TypeAlias = Any  # pyroute2 brings no types

IFF_UP = 0x1
IFF_LOWER_UP = 0x10000
ETHERNET = 1
SCOPE_LINK = 253  # addresses from here on are of no use to another host
TABLE_MAIN = 254
UNICAST = 1


def read_netlink(only: Collection[str] | None = None) -> tuple[tuple[Eni, ...], Addresses] | None:
    """Ask the kernel for interfaces, addresses and routes; None when it does not answer.

    Only of interfaces with one of these names it is asked for channels and speed.
    """
    from pyroute2 import Ethtool, IPRoute  # noqa: PLC0415
    from pyroute2.ethtool.ioctl import EthtoolError  # noqa: PLC0415
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    try:
        with IPRoute() as route, contextlib.closing(Ethtool()) as ethtool:
            found = list(route.get_links())
            links = [_eni_of_link(message) for message in found if message["ifi_type"] == ETHERNET]
            names = {message["index"]: str(message.get_attr("IFLA_IFNAME")) for message in found}
            links = [_with_ethtool(link, ethtool) if link.is_one(only) else link for link in links]
            addresses = _addresses_of_route(route, names)
    except (OSError, NetlinkError, EthtoolError):
        return None
    return tuple(sorted(links, key=lambda link: link.index)), addresses


def _eni_of_link(message: Message) -> Eni:
    info, xdp = message.get_attr("IFLA_LINKINFO"), message.get_attr("IFLA_XDP")
    properties = message.get_attr("IFLA_PROP_LIST")
    eni = Eni(
        name=str(message.get_attr("IFLA_IFNAME")),
        altnames=tuple(map(str, properties.get_attrs("IFLA_ALT_IFNAME"))) if properties else (),
        index=message["index"],
        mac=message.get_attr("IFLA_ADDRESS") or "",
        kind=str(info.get_attr("IFLA_INFO_KIND") or "") if info else "",
        is_port=message.get_attr("IFLA_MASTER") is not None,
        is_up=bool(message["flags"] & IFF_UP),
        has_link=bool(message["flags"] & IFF_LOWER_UP),
        mtu=message.get_attr("IFLA_MTU") or 0,
        mtu_max=message.get_attr("IFLA_MAX_MTU") or 0,
        xdp_attached=bool(xdp and xdp.get_attr("IFLA_XDP_ATTACHED")),
    )
    return msgspec.structs.replace(eni, **sizes_of(message))


def _with_ethtool(link: Eni, ethtool: Message) -> Eni:
    """Add channels and speed, where the driver reports them."""
    from pyroute2.ethtool.ioctl import EthtoolError  # noqa: PLC0415
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    with contextlib.suppress(OSError, EthtoolError):
        channels = ethtool.get_channels(link.name)
        link = msgspec.structs.replace(
            link,
            queues=channels.combined_count or channels.rx_count,
            queues_tx=0 if channels.max_combined else channels.tx_count,
            queues_max=channels.max_combined or min(channels.max_rx, channels.max_tx),
        )
    with contextlib.suppress(OSError, EthtoolError, NetlinkError):
        speed = ethtool.get_link_mode(link.name).speed or 0
        link = msgspec.structs.replace(link, speed_mbps=max(int(speed), 0))
    return link


def _addresses_of_route(route: Message, names: dict[int, str]) -> Addresses:
    found = Addresses()
    for family in (socket.AF_INET, socket.AF_INET6):
        for message in route.get_addr(family=family):
            address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            if address and message["scope"] < SCOPE_LINK and message["index"] in names:
                found.add(names[message["index"]], f"{address}/{message['prefixlen']}")
        for message in route.get_routes(family=family):
            if message["type"] == UNICAST:
                _add_route(found, message, names, 4 if family == socket.AF_INET else 6)
    return found


def _add_route(found: Addresses, message: Message, names: dict[int, str], version: int) -> None:
    hops = [(message.get_attr("RTA_OIF"), message.get_attr("RTA_GATEWAY"))]
    hops += [(hop["oif"], hop.get_attr("RTA_GATEWAY")) for hop in message.get_attr("RTA_MULTIPATH") or ()]
    is_default = message["dst_len"] == 0 and message.get_attr("RTA_TABLE") == TABLE_MAIN
    for index, gateway in hops:
        if index not in names:
            continue
        if gateway:
            found.add_hop(names[index], str(gateway))
        if is_default:
            metric = message.get_attr("RTA_PRIORITY") or 0
            found.defaults.append(Default(name=names[index], version=version, metric=metric))
