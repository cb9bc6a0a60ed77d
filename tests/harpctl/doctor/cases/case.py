# SPDX-License-Identifier: Apache-2.0
"""A case of a check: how a healthy host is spoilt, and what the check then reports. One function per case."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.harpctl.doctor.world import World

Spoil = Callable[[World], None]


class Case(msgspec.Struct, frozen=True):
    """A spoilt host, and what is then reported: the level, words of the cause, the repair's commands."""

    id: str
    level: str
    cause: str
    repair: tuple[str, ...]
    is_safe: bool
    spoil: Spoil


CASES: list[Case] = []


def case(id_: str, level: str, cause: str, *repair: str, is_safe: bool = False) -> Callable[[Spoil], Spoil]:
    def enter(spoil: Spoil) -> Spoil:
        CASES.append(Case(id_, level, cause, repair, is_safe, spoil))
        return spoil

    return enter
