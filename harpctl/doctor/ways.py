# SPDX-License-Identifier: Apache-2.0
"""The ways from this host's ENIs to a peer's addresses, each probed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from harpctl.confs.conf import Conf
from harpctl.doctor.live import Live
from harpctl.doctor.reach import Reach
from harpctl.facts.model import Eni
from harpctl.host.door import Host

EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
EPHEMERAL_DEFAULT = (32768, 60999)
MTU_DEFAULT = 1500
PARALLEL = 64


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """From one ENI's address to one of the peer's, and what was found out."""

    eni: str
    source: str
    target: str
    mtu: int
    ports: tuple[int, ...]  # to be tried: the lowest and the highest that HARP may use, and some between
    reach: Reach = Reach(udp="")

    @property
    def name(self) -> str:
        """Return it for a message."""
        return f"{self.eni} ({self.source}) to {self.target}"


def plan_ways(pairs: Iterable[tuple[Conf, Eni]], targets: Sequence[str], ports: tuple[int, int]) -> list[Way]:
    """Return the ways from the ENIs of conf files to addresses; `ports` where a file names no range."""
    found = []
    for conf, eni in pairs:
        source = conf.address or next((a.partition("/")[0] for a in eni.addresses), "")
        mtu = conf.mtu or eni.mtu or MTU_DEFAULT
        found += [
            Way(eni=eni.name, source=source, target=target, mtu=mtu, ports=conf.ports or ports)
            for target in targets
            if source and (":" in source) == (":" in target)
        ]
    return found


def probe(live: Live, port: int, ways: Iterable[Way]) -> tuple[Way, ...]:
    """Probe all ways, many at once; each may take 10 s where nothing answers."""

    def tried(way: Way) -> Way:
        found = live.reach(way.source, way.target, port, way.mtu, way.ports)
        return msgspec.structs.replace(way, reach=found)

    with ThreadPoolExecutor(PARALLEL) as pool:
        return tuple(pool.map(tried, ways))


def ephemeral_ports(host: Host) -> tuple[int, int]:
    """Return the range from which the kernel chooses ports."""
    words = host.read_word(EPHEMERAL).split()
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return int(words[0]), int(words[1])
    return EPHEMERAL_DEFAULT
