# SPDX-License-Identifier: Apache-2.0
"""Counts the hugepages that a host's ranks really use, by the rules of plugin/src/engine/engine_open.c.

An engine takes its memory when it is started, in whole pages of its own. No core has two engines, and a
rank has one at least.
"""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.confs.conf import Conf
from harpctl.confs.table import KEYS
from harpctl.facts.xdp import ZERO_COPY
from harpctl.setup.choose import Choice
from harpctl.units import MIB

ENGINE_BYTES = 16 * MIB
BLOCKS_BYTES = 8 * MIB  # an engine's blocks, beside the packets
# Of an ENI's packets: of all engines together, and of each.
XDP_BYTES, XDP_BYTES_SHARE_MIN = 64 * MIB, 4 * MIB
UDP_BYTES = 2 * MIB  # the memory of an ENI's packets, with every driver
AUTO = "auto"
XDP_DRIVERS = {word for word in KEYS["driver"].words if word.startswith("xdp")}
KERNEL_DRIVERS = {*KEYS["driver"].words} - XDP_DRIVERS - {AUTO}


def engine_count(choices: Sequence[Choice], ranks: int) -> int:
    """Return how many engines the ranks of a host have together."""
    return max(ranks, len({core for choice in choices for core in choice.cores}))


def engine_bytes(choices: Sequence[Choice], confs: dict[str, Conf]) -> int:
    """Return what one engine takes; it has a driver on each ENI, whose memory the engines share."""
    sharers = max(len({core for choice in choices for core in choice.cores}), 1)
    known = [confs[choice.eni.name] for choice in choices if choice.eni.name in confs]
    configured = sum(conf.bytes or 0 for conf in known)
    frames = sum(_frames_bytes(choice, confs.get(choice.eni.name), sharers) for choice in choices)
    return max(configured // sharers if configured else max(ENGINE_BYTES, frames + BLOCKS_BYTES), frames)


def _frames_bytes(choice: Choice, conf: Conf | None, sharers: int) -> int:
    driver = conf.driver if conf is not None and conf.driver else AUTO
    has_xdp = driver in XDP_DRIVERS or (driver not in KERNEL_DRIVERS and choice.eni.xdp == ZERO_COPY)
    return UDP_BYTES + (max(XDP_BYTES // sharers, XDP_BYTES_SHARE_MIN) if has_xdp else 0)


def pages_used(choices: Sequence[Choice], confs: dict[str, Conf], ranks: int, page_size: int) -> int:
    """Return the number of pages of a size that the ranks use: each engine whole pages of its own."""
    pages = -(-engine_bytes(choices, confs) // page_size)
    return pages * engine_count(choices, ranks)
