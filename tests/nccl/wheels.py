# SPDX-License-Identifier: Apache-2.0
"""The official NCCL libraries that the tests drive: at least one for each version of the plugin's table."""

from __future__ import annotations

import dataclasses

from harpctl.bench import nccl_wheel


@dataclasses.dataclass(frozen=True)
class Release:
    """One release: its number, and the newest plugin table that it knows."""

    version: str
    table: int

    def __str__(self) -> str:
        return self.version


NEWEST = Release(nccl_wheel.NEWEST, 12)
RELEASES = (
    Release("2.13.4", 6),
    Release("2.18.3", 6),
    Release("2.19.3", 7),
    Release("2.21.5", 8),
    Release("2.22.3", 8),
    Release("2.25.1", 9),
    Release("2.27.7", 10),
    Release("2.29.7", 11),
    Release("2.30.7", 12),
    NEWEST,
)
