# SPDX-License-Identifier: Apache-2.0
"""How an ENI is to be configured, independent of the network manager."""

from __future__ import annotations

import ipaddress

import msgspec

TABLE_FIRST = 7700  # routing tables 7700 to 7715 are HARP's, one per ENI
TABLE_COUNT = 16
RULE_PRIORITY_FIRST = 7700


class EniPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One ENI: up, with this address, and its own routing table for what is sent from that address."""

    number: int  # of its ztcp<N>.conf
    name: str
    mac: str = ""  # "" unknown
    address: str  # with prefix length, IPv4 or IPv6: 10.0.1.5/24
    gateway: str = ""  # "": only the own subnet is reached
    mtu: int | None = None  # None: as it is
    queues: int | None = None  # combined channels; None: as they are

    @property
    def table(self) -> int:
        """Return the number of its routing table."""
        return TABLE_FIRST + self.number

    @property
    def priority(self) -> int:
        """Return the priority of its routing rule."""
        return RULE_PRIORITY_FIRST + self.number

    @property
    def version(self) -> int:
        """Return the version of IP: 4 or 6."""
        return ipaddress.ip_interface(self.address).version

    @property
    def host(self) -> str:
        """Return the address without its prefix length."""
        return str(ipaddress.ip_interface(self.address).ip)

    @property
    def prefix(self) -> int:
        """Return the prefix length of the address."""
        return ipaddress.ip_interface(self.address).network.prefixlen

    @property
    def subnet(self) -> str:
        """Return the subnet of the address: 10.0.1.0/24."""
        return str(ipaddress.ip_interface(self.address).network)

    @property
    def everything(self) -> str:
        """Return the destination that all addresses fit."""
        return "0.0.0.0/0" if self.version == 4 else "::/0"
