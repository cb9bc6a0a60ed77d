# SPDX-License-Identifier: Apache-2.0
"""What the operator says of a host because its tree does not hold it: the options that go before facts."""

from __future__ import annotations

import msgspec


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from options. None and empty: not given, so that what the host shows counts."""

    gpus: int | None = None
    memory: int | None = None  # bytes
    enis: tuple[str, ...] = ()  # interfaces that exist although sys does not show them
    addresses: dict[str, str] = {}  # interface -> address with prefix length
    gateways: dict[str, str] = {}  # interface -> next hop of its subnet
    macs: dict[str, str] = {}
