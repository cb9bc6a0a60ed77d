# SPDX-License-Identifier: Apache-2.0
"""Addresses and next hops of interfaces: one form for netlink's and for /proc's."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from harpctl.facts import text
from harpctl.host.host import Host

ROUTE_UP = 0x1
SCOPES_OWN = {0x10, 0x20}  # the scopes of /proc/net/if_inet6: the host's own, the link's own
LOCAL = re.compile(r"\|-- ([0-9.]{7,15})\n\s+/32 host LOCAL")


class Default(msgspec.Struct, frozen=True, kw_only=True):
    """A default route of the main table."""

    name: str
    version: int  # 4 or 6
    metric: int = 0


class Addresses(msgspec.Struct, kw_only=True):
    """A network namespace's addresses with prefix length, next hops of any route, and default routes."""

    of: dict[str, list[str]] = {}  # interface -> addresses, IPv4 before IPv6
    hops: dict[str, list[str]] = {}
    defaults: list[Default] = []

    def add(self, name: str, address: str) -> None:
        """Add an address of an interface, once."""
        own = self.of.setdefault(name, [])
        if address not in own:
            own.append(address)

    def add_hop(self, name: str, hop: str) -> None:
        """Add a next hop that a route reaches by an interface, once."""
        own = self.hops.setdefault(name, [])
        if hop not in own:
            own.append(hop)

    def default_names(self) -> set[str]:
        """Return the names of the interfaces of the best default route of each IP version."""
        names: set[str] = set()
        for version in (4, 6):
            routes = [route for route in self.defaults if route.version == version]
            best = min((route.metric for route in routes), default=0)
            names.update(route.name for route in routes if route.metric == best)
        return names

    def gateway(self, name: str, addresses: tuple[str, ...]) -> str:
        """Return the next hop that lies in the subnet of one of these addresses; "" when there is none."""
        for address in addresses:
            try:
                subnet = ipaddress.ip_interface(address).network
            except ValueError:
                continue
            for hop in self.hops.get(name, []):
                if ipaddress.ip_address(hop) in subnet:
                    return hop
        return ""


def read_proc(host: Host, unknown: list[str]) -> Addresses:
    """Read what /proc/net shows.

    /proc does not show to which interface an IPv4 address belongs: it is the one whose subnet holds it. Where
    several have that subnet, the address is attributed to none, and `unknown` gets a sentence.
    """
    found = Addresses()
    subnets = _read_routes(host, found)
    for address in dict.fromkeys(LOCAL.findall(text.read_clean(host, "/proc/net/fib_trie"))):
        try:
            own = ipaddress.IPv4Address(address)
        except ValueError:
            continue
        if not own.is_loopback:
            _attribute_address(own, subnets, found, unknown)
    _read_ipv6(host, found)
    return found


def _attribute_address(
    own: ipaddress.IPv4Address,
    subnets: list[tuple[str, ipaddress.IPv4Network]],
    found: Addresses,
    unknown: list[str],
) -> None:
    longest = max((net.prefixlen for _name, net in subnets if own in net), default=-1)
    owners = sorted({name for name, net in subnets if own in net and net.prefixlen == longest})
    if len(owners) == 1:
        found.add(owners[0], f"{own}/{longest}")
        return
    where = f"{', '.join(owners)} share its subnet" if owners else "no interface has its subnet"
    unknown.append(f"The interface of the address {own} is unknown: /proc/net does not show it, and {where}.")


def _read_routes(host: Host, found: Addresses) -> list[tuple[str, ipaddress.IPv4Network]]:
    """Read /proc/net/route into `found`; return the subnets that interfaces reach without a next hop."""
    subnets = []
    for line in text.read_lines(host, "/proc/net/route")[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        target, hop, mask = (_parse_ipv4(fields[i]) for i in (1, 2, 7))
        if target is None or hop is None or mask is None or not text.parse_number(fields[3], 0, 16) & ROUTE_UP:
            continue
        try:
            subnet = ipaddress.IPv4Network(f"{target}/{mask}")
        except ValueError:
            continue
        if int(hop):
            found.add_hop(fields[0], str(hop))
        if subnet.prefixlen == 0:
            found.defaults.append(Default(name=fields[0], version=4, metric=text.parse_number(fields[6], 0)))
        elif not int(hop):
            subnets.append((fields[0], subnet))
    return subnets


def _parse_ipv4(field: str) -> ipaddress.IPv4Address | None:
    """Read an address as the kernel writes it there: its bytes as a number of the machine, in hex."""
    if not re.fullmatch(r"[0-9A-Fa-f]{8}", field, re.ASCII):
        return None
    return ipaddress.IPv4Address(bytes.fromhex(field)[::-1])


def _parse_ipv6(field: str) -> ipaddress.IPv6Address | None:
    if not re.fullmatch(r"[0-9A-Fa-f]{32}", field, re.ASCII):
        return None
    return ipaddress.IPv6Address(bytes.fromhex(field))


def _read_ipv6(host: Host, found: Addresses) -> None:
    for line in text.read_lines(host, "/proc/net/if_inet6"):
        fields = line.split()
        own = _parse_ipv6(fields[0]) if len(fields) == 6 else None
        if own is not None and text.parse_number(fields[3], -1, 16) not in SCOPES_OWN:
            prefix = text.parse_number(fields[2], -1, 16)
            if 0 <= prefix <= 128:
                found.add(fields[5], f"{own}/{prefix}")
    for line in text.read_lines(host, "/proc/net/ipv6_route"):
        fields = line.split()
        hop = _parse_ipv6(fields[4]) if len(fields) == 10 else None
        if hop is not None and int(hop):
            found.add_hop(fields[9], str(hop))
            if fields[1] == "00" and not int(fields[0], 16):
                found.defaults.append(
                    Default(name=fields[9], version=6, metric=text.parse_number(fields[5], 0, 16))
                )
