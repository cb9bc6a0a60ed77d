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
    KILLED,
    MTU_MAX,
    QUEUES,
    TIMED_OUT,
    Guests,
    assert_nothing_left,
    assert_went_through,
    config_of,
    finish,
    start,
)

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

SIZES = "1,8,127,1000,4096,16385,64K,512K,1M"
MESSAGES = 8  # of each size
HURT_S = 20  # how long the jobs run that something happens to
REFUSED_JUMBO = "xdp zero-copy: binding queue 0 zero-copy with several buffers: Operation not supported"
REFUSED = "xdp zero-copy: binding queue 0 zero-copy: Invalid argument"


@pytest.mark.parametrize(
    ("drivers", "modes"),
    [
        (("xdp-zc", "xdp-zc"), ("xdp zero-copy", "xdp zero-copy")),
        (("auto", "udp"), ("xdp zero-copy", "udp gso+gro")),
        (("udp", "auto"), ("udp gso+gro", "xdp zero-copy")),
    ],
)
@pytest.mark.parametrize("version", [4, 6])
def test_data_arrives_whole(
    guests: Guests, drivers: Sequence[str], modes: Sequence[str], version: int
) -> None:
    start(
        guests,
        drivers,
        f"--mode bidir --sizes {SIZES} --iters {MESSAGES} --warmup 2",
        config_of("eth0", version),
    )
    for end, mode in zip(finish(guests), modes, strict=True):
        assert_went_through(end, mode)
    assert_nothing_left(guests)


def test_copy_mode_where_zero_copy_is_refused(guests: Guests) -> None:
    """The modes of a driver that knows zero-copy and cannot do it: each word of the conf gets its mode."""
    words = "--mode bidir --sizes 64K --iters 10 --warmup 2"
    start(guests, ("auto", "xdp"), words, config_of("eth1"))
    first, second = finish(guests)
    assert_went_through(first, f"udp gso+gro: {REFUSED},")
    assert_went_through(second, f"xdp native copy: {REFUSED},")

    start(guests, ("xdp-zc", "xdp-copy"), words, config_of("eth1"))
    end = guests[0].wait()
    assert end.code == EXIT_PLUGIN
    assert "WARN " in end.log
    assert f"eth1: {REFUSED}" in end.log
    guests[1].wait()
    assert_nothing_left(guests)


@pytest.mark.parametrize("version", [4, 6])
def test_several_queues(guests: Guests, version: int) -> None:
    """Each queue has rings of its own and sends, on a NIC whose receive offloads XDP has to switch off."""
    words = f"--mode bidir --sizes {SIZES} --iters {MESSAGES} --warmup 2 --connections 4"
    before = [guest.sent_by_queue("eth2") for guest in guests]
    start(guests, ("xdp-zc", "auto"), words, config_of("eth2", version))
    for end in finish(guests):
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
        start(guests, ("auto", "auto"), "--mode bidir --sizes 1,64K,1M --iters 5", config_of("eth2"))
        for end in finish(guests):
            assert_went_through(end, mode)
            assert end.statistics["tx_bytes"] > ETHERNET_MTU * end.statistics["tx_packets"]
        assert_nothing_left(guests)
    finally:
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {ETHERNET_MTU}")


def running(guests: Guests) -> None:
    """Start a job with zero-copy on both ends and wait until it moves payload."""
    start(
        guests,
        ("xdp-zc", "xdp-zc"),
        f"--mode bidir --sizes 64K --time {HURT_S} --timeout 30",
        config_of("eth0"),
    )
    for guest in guests:
        guest.until("grep -qs 'connected to' /run/job/log || [ -f /run/job/code ]")
        attached = guest.attached()
        assert attached == ["eth0 driver", "harp_filter", "harp_ports", "harp_sockets", "eth0:q0"]


def test_an_interface_that_goes_down_takes_the_job_to_the_sockets(guests: Guests) -> None:
    running(guests)
    guests[0].machine.run("ip link set eth0 down; sleep 1; ip link set eth0 up")
    first, second = finish(guests)
    fallen = "AF_XDP disabled: the interface went down; continuing with udp gso+gro"
    assert first.log.count(fallen) == first.statistics["driver_fallbacks"] <= 1  # none where nothing was sent
    assert second.statistics["driver_fallbacks"] == 0
    assert_nothing_left(guests)


def test_a_killed_process_leaves_nothing_attached(guests: Guests) -> None:
    running(guests)
    guests[0].machine.run("kill -9 $(pidof harp-perf)")
    codes = [guest.wait().code for guest in guests]
    assert codes[0] == KILLED
    assert codes[1] not in {0, KILLED, TIMED_OUT}, "the other rank ends by itself"
    guests[0].until("! ss -H --xdp | grep -q .")  # the kernel tears down what the process had
    assert_nothing_left(guests)
    start(guests, ("xdp-zc", "xdp-zc"), "--mode stream --sizes 64K --iters 5 --warmup 1", config_of("eth0"))
    for end in finish(guests):
        assert_went_through(end, "xdp zero-copy")
