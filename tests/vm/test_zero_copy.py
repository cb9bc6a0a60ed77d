# SPDX-License-Identifier: Apache-2.0
"""Zero-copy AF_XDP on a real NIC driver: two guests whose virtio_net binds it, and wires between them.

The ranks meet over eth0: the kernel's own packets have to pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.lab.job import EXIT_PLUGIN
from tests.vm.guests import (
    ETHERNET_MTU,
    MTU_MAX,
    QUEUES,
    WHOLE,
    Guests,
    assert_nothing_left,
    assert_went_through,
    config_of,
    finish_job,
    start_job,
)

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

REFUSED_JUMBO = "xdp zero-copy: binding queue 0 zero-copy with several buffers: Operation not supported"
REFUSED = "xdp zero-copy: binding queue 0 zero-copy: Invalid argument"


@pytest.mark.parametrize(
    ("version", "drivers", "modes"),
    [
        (4, ("xdp-zc", "xdp-zc"), ("xdp zero-copy", "xdp zero-copy")),
        (6, ("xdp-zc", "xdp-zc"), ("xdp zero-copy", "xdp zero-copy")),
        (4, ("auto", "udp"), ("xdp zero-copy", "udp gso+gro")),
        (6, ("udp", "auto"), ("udp gso+gro", "xdp zero-copy")),
    ],
)
def test_data_arrives_whole(guests: Guests, version: int, drivers: Sequence[str], modes: Sequence[str]) -> None:
    start_job(guests, drivers, WHOLE, config_of("eth0", version))
    for end, mode in zip(finish_job(guests), modes, strict=True):
        assert_went_through(end, mode)
    assert_nothing_left(guests)


def test_copy_mode_where_zero_copy_is_refused(guests: Guests) -> None:
    """The modes of a driver that knows zero-copy and cannot do it: each word of the conf gets its mode."""
    words = "--mode bidir --sizes 64K --iters 10 --warmup 2"
    start_job(guests, ("auto", "xdp"), words, config_of("eth1"))
    first, second = finish_job(guests)
    assert_went_through(first, f"udp gso+gro: {REFUSED},")
    assert_went_through(second, f"xdp native copy: {REFUSED},")

    start_job(guests, ("xdp-zc", "xdp-copy"), words, config_of("eth1"))
    end = guests[0].wait()
    assert end.code == EXIT_PLUGIN
    assert "WARN " in end.log
    assert f"eth1: {REFUSED}" in end.log
    guests[1].wait()
    assert_nothing_left(guests)


@pytest.mark.parametrize("version", [4, 6])
def test_several_queues(guests: Guests, version: int) -> None:
    """Each queue has rings of its own and sends, on a NIC whose receive offloads XDP has to switch off."""
    before = [guest.sent_by_queue("eth2") for guest in guests]
    start_job(guests, ("xdp-zc", "auto"), f"{WHOLE} --connections 4", config_of("eth2", version))
    for end in finish_job(guests):
        assert_went_through(end, "xdp zero-copy")
    for guest, old in zip(guests, before, strict=True):
        grown = [new - known for new, known in zip(guest.sent_by_queue("eth2"), old, strict=True)]
        assert len(grown) >= QUEUES
        assert all(count > 10 for count in grown[:QUEUES]), grown
    assert_nothing_left(guests)


@pytest.mark.parametrize(
    ("mtu", "mode"),
    [(3498, "xdp zero-copy"), (MTU_MAX, f"udp gso+gro: {REFUSED_JUMBO},")],
)
def test_larger_packets(guests: Guests, mtu: int, mode: str) -> None:
    """A packet must fit a frame here: virtio_net has zero-copy without several buffers for a packet."""
    try:
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {mtu}")
        start_job(guests, ("auto", "auto"), "--mode bidir --sizes 1,64K,256K --iters 5", config_of("eth2"))
        for end in finish_job(guests):
            assert_went_through(end, mode)
            assert end.statistics["tx_bytes"] > ETHERNET_MTU * end.statistics["tx_packets"]
        assert_nothing_left(guests)
    finally:
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {ETHERNET_MTU}")
