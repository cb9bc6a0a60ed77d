# SPDX-License-Identifier: Apache-2.0
"""Describes what HARP needs of each interface: setup writes the record, and `harpctl boot` applies it.

It lies in RECORD. Nothing else says which address, MTU, routes and rules an ENI has; whether the kernel has
them is asked of the kernel (runtime.py).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.facts.sources import RECORD

TABLE_FIRST = 7700  # routing tables 7700 to 7715 are HARP's, one per ENI
TABLE_COUNT = 16
RULE_PRIORITY_FIRST = 7700


class EniPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One ENI: up, with this address, and its own routing table for what is sent from that address."""

    number: int  # the number of its ztcp<N>.conf
    name: str
    mac: str = ""  # "" unknown
    address: str = ""  # with prefix length: 10.0.1.5/24; "": its address and routes are a manager's
    gateway: str = ""  # "": only the own subnet is reached
    mtu: int | None = None  # None: as it is
    queues: int | None = None  # channels; None: as they are

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
        """Return the version of IP: 4 or 6. Without an address it is 4."""
        return ipaddress.ip_interface(self.address).version if self.address else 4

    @property
    def host(self) -> str:
        """Return the address without its prefix length."""
        return str(ipaddress.ip_interface(self.address).ip)

    @property
    def subnet(self) -> str:
        """Return the subnet of the address: 10.0.1.0/24."""
        return str(ipaddress.ip_interface(self.address).network)


class Interfaces(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All that `harpctl boot` applies, and what the next setup keeps where no option says otherwise."""

    enis: tuple[EniPlan, ...] = ()
    big_tcp: bool | None = None  # whether TCP may use larger packets (big_tcp.py); None: nobody chose
    hugepages: int | None = None  # as --hugepages chose, 0 for fit; None: by the number of GPUs
    page_size: int | None = None  # as --page-size chose, in bytes; None: 1 GiB

    def find_eni(self, name: str) -> EniPlan | None:
        """Return what an interface of that name needs."""
        return next((eni for eni in self.enis if eni.name == name), None)

    def with_names(self, name_of: Callable[[str], str]) -> Interfaces:
        """Return the same with other names: those of the kernel for alternative ones, by Facts.name_of."""
        enis = tuple(msgspec.structs.replace(eni, name=name_of(eni.name)) for eni in self.enis)
        return msgspec.structs.replace(self, enis=enis)


def encode_record(interfaces: Interfaces) -> bytes:
    """Return the text of the record; decode_record() of it returns the same."""
    return msgspec.json.format(msgspec.json.encode(interfaces), indent=2) + b"\n"


def decode_record(data: bytes | None) -> Interfaces:
    """Return the record in a file; an empty one for None. Raises HarpError for what is no record."""
    if data is None:
        return Interfaces()
    try:
        found = msgspec.json.decode(data, type=Interfaces)
        for eni in found.enis:
            check_plan(eni)
    except (msgspec.MsgspecError, UnicodeDecodeError, HarpError) as error:
        raise HarpError(
            f"{RECORD} is not as harpctl setup wrote it: {error}.",
            f"Remove it and set the host up again: sudo rm {RECORD} && sudo harpctl setup",
            ExitCode.WRONG_DATA,
        ) from None
    return found


def check_plan(eni: EniPlan) -> None:
    """Raise HarpError for an address, gateway or number that can't be."""
    try:
        version = ipaddress.ip_interface(eni.address).version if eni.address else 0
        same = not eni.gateway or ipaddress.ip_address(eni.gateway).version == version
    except ValueError as error:
        raise HarpError(
            f"{eni.name}: {error}.", f"For example: --address {eni.name}=10.0.1.5/24", ExitCode.USAGE
        ) from None
    if not same:
        raise HarpError(
            f"{eni.name}: the gateway {eni.gateway} is of another IP version than the address {eni.address}.",
            f"Give the gateway of that subnet: --gateway {eni.name}=ADDRESS",
            ExitCode.USAGE,
        )
    if not 0 <= eni.number < TABLE_COUNT:
        raise HarpError(
            f"{eni.name} would be number {eni.number}: HARP uses at most {TABLE_COUNT} ENIs.",
            "Name fewer with --enis.",
            ExitCode.USAGE,
        )
