# SPDX-License-Identifier: Apache-2.0
"""Cables between hosts of a lab, with a subnet for each, beside the lab's own ENIs."""

from __future__ import annotations

from collections.abc import Sequence

from harplab.lab.commands import ip_inside
from harplab.lab.lab import Lab, run_command
from tests.lab.job import poll_until


def join_hosts(lab: Lab, one: int, other: int, names: tuple[str, str], addresses: tuple[str, str]) -> None:
    """Join two hosts by a cable; each end has a name and an address with its prefix length."""
    words = ("type", "veth", "peer", "name", names[1], "netns", lab.hosts[other])
    run_command(ip_inside(lab.hosts[one], "link", "add", names[0], *words))
    for host, name, address in zip((one, other), names, addresses, strict=True):
        nodad = ("nodad",) if ":" in address else ()
        run_command(ip_inside(lab.hosts[host], "address", "add", address, "dev", name, *nodad))
        run_command(ip_inside(lab.hosts[host], "link", "set", name, "up"))
    for host, name in zip((one, other), names, strict=True):
        shown = ip_inside(lab.hosts[host], "-oneline", "link", "show", name)
        poll_until(f"{name} is up", lambda shown=shown: "state UP" in run_command(shown))  # type: ignore[misc]


def join_pairs(lab: Lab, pairs: Sequence[tuple[int, int]]) -> None:
    """Make a cable for each pair of hosts: to<peer>, 10.78.<number of the cable>.<host + 1>."""
    for number, (one, other) in enumerate(pairs):
        ends = (f"10.78.{number}.{one + 1}/24", f"10.78.{number}.{other + 1}/24")
        join_hosts(lab, one, other, (f"to{other}", f"to{one}"), ends)
