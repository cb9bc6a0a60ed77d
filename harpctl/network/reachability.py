# SPDX-License-Identifier: Apache-2.0
"""Checks that the host can still be reached: what answered before a change must answer after it.

Looked at are the default gateways, by ping, else by their neighbour entry (clouds' gateways often answer ARP
only), and the client of the ssh session, by ping, else by the route that leads to it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import msgspec

from harpctl.facts import ssh
from harpctl.host.host import Host
from harpctl.ip import family_of, is_ipv6

NEIGHBOUR_WAIT_S = 9.0  # the kernel waits 5 s before it asks again for a stale neighbour, then asks 3 times
POLL_S = 0.2
DISCARD_PORT = 9


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One address that answered, and how that was seen: "ping", "neighbour", or "route" with the route."""

    address: str
    seen_by: str
    route: str = ""


class Reachable(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that could be reached at some time."""

    targets: tuple[Target, ...] = ()

    def list_lost(self, host: Host) -> tuple[str, ...]:
        """Return the addresses that can't be reached any more."""
        return tuple(target.address for target in self.targets if not _SEEN_BY[target.seen_by](host, target))


def _version_option(address: str) -> str:
    return "-6" if is_ipv6(address) else "-4"


def _query_route(host: Host, address: str) -> str:
    """Return the next hop and the interface towards an address; "" where no route leads to it."""
    words = (host.query(["ip", _version_option(address), "route", "get", address]) or "").split()
    pairs = [f"{name} {words[words.index(name) + 1]}" for name in ("via", "dev") if name in words[:-1]]
    return " ".join(pairs)


def _answers_ping(host: Host, target: Target) -> bool:
    argv = ["ping", _version_option(target.address), "-n", "-c", "1", "-W", "1", target.address]
    return any(host.query(argv) is not None for _try in range(3))


def _is_neighbour(host: Host, target: Target) -> bool:
    """Return whether the address answers ARP or neighbour discovery, asked anew by a packet to it."""
    deadline = time.monotonic() + NEIGHBOUR_WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.socket(family_of(target.address), socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", (target.address, DISCARD_PORT))
        words = (
            host.query(["ip", _version_option(target.address), "neigh", "show", target.address]) or ""
        ).split()
        if "REACHABLE" in words or "PERMANENT" in words:
            return True
        if "FAILED" in words:
            return False
        time.sleep(POLL_S)
    return False


def _has_same_route(host: Host, target: Target) -> bool:
    return _query_route(host, target.address) == target.route


_SEEN_BY: dict[str, Callable[[Host, Target], bool]] = {
    "ping": _answers_ping,
    "neighbour": _is_neighbour,
    "route": _has_same_route,
}


def _list_gateways(host: Host) -> list[str]:
    found = []
    for version in ("-4", "-6"):
        for line in (host.query(["ip", version, "route", "show", "default"]) or "").splitlines():
            words = line.split()
            if "via" in words[:-1]:
                found.append(words[words.index("via") + 1])
    return [address for address in dict.fromkeys(found) if not address.startswith("fe80")]


def find_ssh_client() -> str:
    """Return the address that this process's ssh session comes from; "" where there is none to be asked."""
    address = next((connection.client for connection in ssh.find_connections()), "")
    return "" if address.startswith("fe80") else address


def find_reachable(host: Host) -> Reachable:
    """Find out what can be reached now."""
    targets = []
    for address in _list_gateways(host):
        for way in ("ping", "neighbour"):
            target = Target(address=address, seen_by=way)
            if _SEEN_BY[way](host, target):
                targets.append(target)
                break
    if client := find_ssh_client():
        target = Target(address=client, seen_by="ping")
        if not _answers_ping(host, target):
            target = Target(address=client, seen_by="route", route=_query_route(host, client))
        targets.append(target)
    return Reachable(targets=tuple(targets))
