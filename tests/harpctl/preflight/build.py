# SPDX-License-Identifier: Apache-2.0
"""Makes what a host says of itself to preflight, for tests."""

from __future__ import annotations

from msgspec.structs import replace

from harpctl.preflight.model import Comparison, EniState, HostState


def make_eni(**changes: object) -> EniState:
    """Return an ENI, with these fields."""
    plain = EniState(name="eth1", address="10.0.0.1", mtu=1500, speed_mbps=0, ports=(1, 9), tried=(1, 9))
    return replace(plain, **changes)


def make_state(**changes: object) -> HostState:
    """Return the state of a host with one ENI, with these fields."""
    plain = HostState(
        harpctl="1.0.0",
        plugin="/p.so",
        is_installed=True,
        version="1.0.0",
        build="abc",
        wire=(1, 1),
        perf="/harp-perf",
        nccl="",
        ephemeral=(32768, 60999),
        enis=(make_eni(),),
    )
    return replace(plain, **changes)


def make_row(size: int, ratio: float) -> Comparison:
    """Return the comparison of one message size, with this ratio."""
    return Comparison(bytes=size, harp_gbps=ratio, other_gbps=1, ratio=ratio, least=ratio, greatest=ratio)
