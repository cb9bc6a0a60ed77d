# SPDX-License-Identifier: Apache-2.0
"""The packets that a network was given, and those of them that it dropped."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class PacketCounts:
    """Packets since the network was made, or since another reading; both directions of all ENIs."""

    offered: int
    dropped: int

    def since(self, before: PacketCounts) -> PacketCounts:
        """Return what came between two readings."""
        return PacketCounts(self.offered - before.offered, self.dropped - before.dropped)


def packets_since(before: PacketCounts | None, now: PacketCounts | None) -> PacketCounts | None:
    """Return what came between two readings; None where nobody counts."""
    return now.since(before) if now is not None and before is not None else None


def lost_share(counts: Sequence[PacketCounts | None]) -> float | None:
    """Return the share of packets that was dropped in all runs together; None where nothing was counted."""
    known = [one for one in counts if one is not None]
    offered = sum(one.offered for one in known)
    return sum(one.dropped for one in known) / offered if offered else None
