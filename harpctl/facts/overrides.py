# SPDX-License-Identifier: Apache-2.0
"""Facts that the operator states because a tree does not hold them; they take precedence."""

from __future__ import annotations

import msgspec


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from options. None and empty: not overridden, the host's own facts count."""

    gpus: int | None = None
    memory: int | None = None  # bytes
    enis: tuple[str, ...] = ()  # interfaces that exist although sys does not show them
    addresses: dict[str, str] = {}  # interface -> address with prefix length
    gateways: dict[str, str] = {}  # interface -> next hop of its subnet
    macs: dict[str, str] = {}
