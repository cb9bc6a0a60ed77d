"""The ways from this host's ENIs to a peer's addresses, each probed once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from harpctl.doctor.reach import Reach

if TYPE_CHECKING:
    from harpctl.doctor.context import Context

EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
EPHEMERAL_DEFAULT = (32768, 60999)
MTU_DEFAULT = 1500
PARALLEL = 16


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """From one ENI's address to one of the peer's, and what was found out."""

    eni: str
    source: str
    target: str
    mtu: int
    ports: tuple[int, int]  # the lowest and the highest that HARP may use
    reach: Reach = Reach(udp="")

    @property
    def name(self) -> str:
        """Give it for a message."""
        return f"{self.eni} ({self.source}) to {self.target}"


def probe(context: Context) -> tuple[Way, ...]:
    """Probe all ways, many at once; each may take 20 s where nothing answers."""
    live, port = context.machine, context.options.port
    targets = [address for peer in context.options.peers for address in live.resolve(peer)[0]]

    def tried(way: Way) -> Way:
        found = live.reach(way.source, way.target, port, way.mtu, way.ports)
        return msgspec.structs.replace(way, reach=found)

    with ThreadPoolExecutor(PARALLEL) as pool:
        return tuple(pool.map(tried, _ways(context, targets)))


def _ways(context: Context, targets: list[str]) -> list[Way]:
    found = []
    for _path, conf, eni in context.pairs:
        source = conf.address or next((a.partition("/")[0] for a in eni.addresses), "")
        mtu, ports = conf.mtu or eni.mtu or MTU_DEFAULT, conf.ports or ephemeral_ports(context)
        found += [
            Way(eni=eni.name, source=source, target=target, mtu=mtu, ports=ports)
            for target in targets
            if source and (":" in source) == (":" in target)
        ]
    return found


def ephemeral_ports(context: Context) -> tuple[int, int]:
    """Give the range from which the kernel chooses ports."""
    words = context.host.read_word(EPHEMERAL).split()
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return int(words[0]), int(words[1])
    return EPHEMERAL_DEFAULT
