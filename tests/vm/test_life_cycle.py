# SPDX-License-Identifier: Apache-2.0
"""Events of a NIC under a job that uses it by AF_XDP, on a real NIC driver: virtio_net in two guests.

The ranks meet over eth1, which nothing happens to, so that harp-perf itself can report how it ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.lab.job import EXIT_PLUGIN
from tests.vm.guests import (
    ETHERNET_MTU,
    KILLED,
    QUEUES,
    TIMED_OUT,
    WHOLE,
    Ended,
    Guest,
    Guests,
    address_of,
    assert_nothing_left,
    assert_went_through,
    config_of,
    device_of,
    finish_job,
    start_job,
)

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

MEETING = f"{address_of(1, 0)}:20500"
ZERO_COPY = ("xdp-zc", "xdp-zc")
MODE = "xdp zero-copy"
SENT = 50
PEER_TIMEOUT_S = 4
ENDING_S = 30  # until what has failed has notified the other rank and ended, on an emulated processor
VLAN_SUBNET = 7
SMALL_MTU = 1400
CONTINUING = "; continuing with udp gso+gro"
DOWN = f"AF_XDP disabled: the interface went down{CONTINUING}"
NOTHING = "eth0: nothing gets through on this interface"
NONE_LEFT = "other processes have all 2 queues"
VIRTIO = "/sys/bus/virtio/drivers/virtio_net"


def begin_job(guests: Guests, config: str, *, nic: str = "") -> None:
    """Start a job with zero-copy on both ends and wait until it moves payload."""
    words = "--mode bidir --sizes 64K --timeout 60 --warmup 0 --interval-ms 500 --time 600"
    start_job(guests, ZERO_COPY, words, config, meeting=MEETING)
    for guest in guests:
        guest.until("grep -qs 'connected to' /run/job/log || [ -f /run/job/code ]")
        assert MODE in guest.log()
    until_moving(guests, nic or re.findall(r"eth\d", config)[-1])


def stop_job(guests: Guests) -> tuple[Ended, Ended]:
    """End the job that begin() started, before its time: how busy the host is decides nothing."""
    for guest in guests:
        guest.machine.run("kill -USR1 $(pidof harp-perf)")
    return finish_job(guests)


def until_moving(guests: Guests, nic: str, packets: int = 400) -> None:
    """Wait until more packets have come over an interface, or the job has ended."""
    count = f"$(cat /sys/class/net/{nic}/statistics/rx_packets)"
    for guest in guests:
        end = int(guest.machine.run(f"echo {count}")) + packets
        guest.until(f"[ {count} -gt {end} ] || [ -f /run/job/code ]")


def works_again(guests: Guests, config: str) -> None:
    """Check that nothing is left, and that the next job gets zero-copy."""
    assert_nothing_left(guests)
    # the wire gives the first packets of a flow to any queue, also to one that is not ours
    start_job(guests, ZERO_COPY, "--mode bidir --sizes 64K --iters 60 --warmup 1", config, meeting=MEETING)
    for end in finish_job(guests):
        assert_went_through(end, MODE)
    assert_nothing_left(guests)


# ---- VLAN ----


@pytest.fixture(scope="module")
def vlan(guests: Guests) -> str:
    """Provide a VLAN over eth2 in both guests."""
    for guest in guests:
        guest.machine.run("modprobe 8021q; ip link add link eth2 name vlan7 type vlan id 7")
        guest.bring_up("vlan7", VLAN_SUBNET)
        for version in (4, 6):
            guest.configure(f"vlan7.{version}", "vlan7", address_of(VLAN_SUBNET, guest.rank, version))
    return "vlan7"


@pytest.mark.parametrize(
    ("version", "drivers", "modes"),
    [
        (4, ("xdp", "xdp"), ("xdp generic copy", "xdp generic copy")),
        (4, ("xdp", "auto"), ("xdp generic copy", "udp gso+gro")),
        (6, ("xdp", "xdp"), ("xdp generic copy", "xdp generic copy")),
    ],
)
def test_vlan(guests: Guests, vlan: str, version: int, drivers: tuple[str, str], modes: tuple[str, str]) -> None:
    """A VLAN has no native mode; its generic mode sees packets without their tag."""
    before = [guest.socket_datagrams() for guest in guests]
    start_job(guests, drivers, WHOLE, config_of(vlan, version), meeting=MEETING)
    for guest, end, mode, old in zip(guests, finish_job(guests), modes, before, strict=True):
        assert f"vlan7: driver {mode}" in end.log
        assert not end.statistics["driver_fallbacks"]
        through_sockets = guest.socket_datagrams() - old
        if drivers == ("xdp", "xdp"):
            assert through_sockets < 0.05 * end.statistics["rx_superframes"]
        elif mode.startswith("udp"):
            assert through_sockets > 0
    assert_nothing_left(guests)


# ---- what a NIC goes through ----


def goes_on_zero_copy(guests: Guests) -> None:
    """Wait until both NICs have taken more out of our frames; a job that ends before has stopped that."""
    for guest in guests:
        end = sum(guest.sent_by_queue("eth2")) + SENT
        while sum(guest.sent_by_queue("eth2")) < end:
            assert guest.machine.execute("[ -f /run/job/code ]").code, guest.log()


def test_what_zero_copy_outlives(guests: Guests) -> None:
    """A NIC without carrier completes its sends; the kernel leaves queues alone that AF_XDP uses."""
    begin_job(guests, config_of("eth2"))
    try:
        guests[0].machine.monitor.execute("set_link", name="eth2", up=False)
        guests[0].until("ip link show eth2 | grep -q NO-CARRIER")
        guests[0].machine.run("sleep 1")
        guests[0].machine.monitor.execute("set_link", name="eth2", up=True)
        goes_on_zero_copy(guests)
        for count in (1, 2 * QUEUES, QUEUES):
            assert guests[1].machine.execute(f"ethtool -L eth2 combined {count}").code
        goes_on_zero_copy(guests)
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {SMALL_MTU}")
        goes_on_zero_copy(guests)
        for end in stop_job(guests):
            assert f"closing driver {MODE} (queues 0-1)\n" in end.log
            assert not end.statistics["driver_fallbacks"]
        assert_nothing_left(guests)
    finally:
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {ETHERNET_MTU}")


def test_interface_of_several_queues_goes_down(guests: Guests) -> None:
    """Who sends into it meanwhile goes on with sockets, when it is up again; the peer keeps zero-copy."""
    config = config_of("eth2")
    begin_job(guests, config)
    guests[1].machine.run("ip link set eth2 down")
    guests[1].until(f"grep -qF '{DOWN}' /run/job/log || [ -f /run/job/code ]")
    guests[1].bring_up("eth2", 2)
    until_moving(guests, "eth2")
    first, second = stop_job(guests)
    assert second.log.count(DOWN) == second.statistics["driver_fallbacks"] == 1
    assert not first.statistics["driver_fallbacks"]
    works_again(guests, config)


def test_a_killed_process_leaves_nothing_and_the_channels_as_they_were(guests: Guests) -> None:
    """virtio_net adds queues for an XDP program, and takes them away with it."""
    config = config_of("eth2")
    before = guests[1].machine.run("ethtool -l eth2")
    begin_job(guests, config)
    sockets = {f"eth2:q{queue}" for queue in range(QUEUES)}
    assert set(guests[1].attached()) == {"eth2 driver", "harp_filter", "harp_ports", "harp_sockets", *sockets}
    assert guests[1].machine.run("ethtool -l eth2") != before
    guests[1].machine.run("kill -9 $(pidof harp-perf)")
    codes = [guest.wait().code for guest in guests]
    assert codes[1] == KILLED
    assert codes[0] not in {0, KILLED, TIMED_OUT}, "the other rank ends by itself"
    guests[1].until("! ss -H --xdp | grep -q .")  # the kernel tears down what the process had
    assert guests[1].machine.run("ethtool -l eth2") == before
    works_again(guests, config)


# ---- two processes ----


@pytest.mark.parametrize(
    ("queues", "driver", "first", "second"),
    [
        ("queues = 1\n", "xdp-zc", "xdp zero-copy (queue 0)", "xdp zero-copy (queue 1)"),
        ("", "auto", "xdp zero-copy (queues 0-1)", f"udp gso+gro: xdp zero-copy: {NONE_LEFT}"),
    ],
    ids=["each has one queue", "the first has all"],
)
def test_a_second_process(guests: Guests, queues: str, driver: str, first: str, second: str) -> None:
    """The second process takes the queues that the first left; those that virtio_net adds for XDP are nobody's."""
    config = "HARP_CONF_DIR=/run/shared HARP_PATHS=4"
    for guest in guests:
        guest.configure("shared", "eth2", address_of(2, guest.rank), queues)
    begin_job(guests, config, nic="eth2")
    words = "--mode bidir --sizes 1,4096,256K --iters 3 --warmup 1"
    start_job(guests, (driver, driver), words, config, meeting=f"{address_of(1, 0)}:20501", job="other")
    for end in finish_job(guests, "other"):
        assert f"eth2: driver {second}" in end.log
        assert not end.statistics["driver_fallbacks"]
    for end in stop_job(guests):
        assert f"eth2: driver {first}" in end.log
        assert not end.statistics["driver_fallbacks"]
    assert_nothing_left(guests)


# ---- the NIC goes away ----


def unplug_nic(guest: Guest, nic: str) -> None:
    """Take a NIC out of the running machine, as a cloud detaches an ENI."""
    guest.machine.monitor.execute("device_del", id=nic)
    guest.machine.monitor.wait_for("DEVICE_DELETED", nic)


def plug_nic(guest: Guest, nic: str) -> None:
    guest.machine.monitor.execute("device_add", **device_of(nic, guest.rank))
    guest.until(f"[ -e /sys/class/net/{nic} ]")
    guest.bring_up(nic, int(nic[-1]))


def unbind_nic(guest: Guest, nic: str) -> None:
    """Take the kernel's driver from a NIC."""
    guest.machine.run(
        f"basename $(readlink /sys/class/net/{nic}/device) >/run/unbound; cat /run/unbound >{VIRTIO}/unbind"
    )


def bind_nic(guest: Guest, nic: str) -> None:
    guest.machine.run(f"cat /run/unbound >{VIRTIO}/bind")
    guest.until(f"[ -e /sys/class/net/{nic} ]")
    guest.bring_up(nic, int(nic[-1]))


def warns_of(end: Ended) -> list[str]:
    return [line for line in end.log.splitlines() if line.startswith("WARN ")]


@pytest.mark.parametrize(("take", "put"), [(unplug_nic, plug_nic), (unbind_nic, bind_nic)])
def test_the_only_nic_goes_away(
    guests: Guests, take: Callable[[Guest, str], None], put: Callable[[Guest, str], None]
) -> None:
    """An error within the peer timeout, one sentence, and an orderly end; the next NIC works as the first."""
    begin_job(guests, f"{config_of('eth0')} HARP_PEER_TIMEOUT={PEER_TIMEOUT_S}")
    take(guests[1], "eth0")
    gone = time.monotonic()
    ends = [guest.wait() for guest in guests]
    assert time.monotonic() - gone < PEER_TIMEOUT_S + ENDING_S
    print(*(end.log for end in ends), sep="----\n")
    assert all(end.code not in {0, KILLED, TIMED_OUT} for end in ends)
    assert EXIT_PLUGIN in {end.code for end in ends}
    assert all(len(warns_of(end)) <= 1 for end in ends)
    assert any("eth0" in warn for end in ends for warn in warns_of(end))
    assert ends[1].log.count(CONTINUING) == ends[1].statistics["driver_fallbacks"] == 1
    assert_nothing_left(guests)
    put(guests[1], "eth0")
    works_again(guests, config_of("eth0"))


def test_one_of_two_nics_goes_away(guests: Guests) -> None:
    """No error and no warning: the connection goes on over the other one."""
    config = "HARP_IFNAME==eth0,eth2"
    begin_job(guests, f"{config} HARP_PEER_TIMEOUT={PEER_TIMEOUT_S}")
    unplug_nic(guests[1], "eth0")
    try:
        until_moving(guests, "eth2")
        while not any(NOTHING in guest.log() for guest in guests):
            assert all(guest.machine.execute("[ -f /run/job/code ]").code for guest in guests)
        first, second = stop_job(guests)
        assert (first.statistics["driver_fallbacks"], second.statistics["driver_fallbacks"]) == (0, 1)
        assert warns_of(first) == warns_of(second) == []  # the job survives it
    finally:
        plug_nic(guests[1], "eth0")
    works_again(guests, config_of("eth0"))
