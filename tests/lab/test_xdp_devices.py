# SPDX-License-Identifier: Apache-2.0
"""AF_XDP on devices that lie over others, and what the kernel merges before a generic program sees it.

None of those devices has native mode: the log reports it, and generic mode is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.errors import HarpError
from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import ALL_SIZES, ENI, UNTIL_FINISHED, Job, poll_until
from tests.lab.xdp import GENERIC, IP6, XDP, add_ip6, assert_bypassed, attached_program

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
UPPER = "upper0"
WORDS: dict[str, tuple[str, ...]] = {
    "vlan": ("link", "add", "link", ENI, "name", UPPER, "type", "vlan", "id", "7"),
    "macvlan": ("link", "add", "link", ENI, "name", UPPER, "type", "macvlan", "mode", "bridge"),
    "bridge": ("link", "add", UPPER, "type", "bridge", "forward_delay", "0"),
}
NO_NATIVE = "attaching a native XDP program failed: Operation not supported"
GATHER = "echo 200000 >gro_flush_timeout && echo 20 >napi_defer_hard_irqs"
FEW = ("--iters", "24", "--warmup", "4")


def _has_carrier(lab: Lab, host: int) -> bool:
    shown = run_command(ip_inside(lab.hosts[host], "link", "show", "dev", UPPER, "up"))
    return "LOWER_UP" in shown


def _stack_device(lab: Lab, kind: str) -> None:
    """Lay a device over the ENI of each host, with an address of its own."""
    for host, name in enumerate(lab.hosts):
        try:
            run_command(ip_inside(name, *WORDS[kind]))
        except HarpError as error:
            if "Unknown device type" in error.message:
                pytest.skip(f"this kernel has no {kind} devices")
            raise
        if kind == "bridge":
            run_command(ip_inside(name, "link", "set", "dev", ENI, "master", UPPER))
        # As harpctl sets it up: else the ENI below may answer for the device's address, with its own MAC.
        run_command(run_inside(name, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"))
        run_command(ip_inside(name, "address", "add", f"10.99.0.{host + 1}/24", "dev", UPPER))
        run_command(ip_inside(name, "link", "set", "dev", UPPER, "up"))
    poll_until("the devices have a carrier", lambda: all(_has_carrier(lab, host) for host in range(2)))


@pytest.mark.parametrize("kind", WORDS)
def test_stacked_device(make_lab: MakeLab, plugin_file: Path, kind: str) -> None:
    """Forced, it takes generic mode, which sees packets as the upper device does: without a tag."""
    lab = make_lab(LabSpec(enis=2))
    _stack_device(lab, kind)
    with Job(lab, plugin_file, words=UNTIL_FINISHED, env=XDP, ifname=UPPER) as running:
        poll_until("the program is there", lambda: attached_program(lab, 0, UPPER).startswith("generic "))
        assert attached_program(lab, 0) == ""
        running.until_moving()
        running.finish()
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=FEW, env=XDP, ifname=UPPER) as job:
        job.finish()
        for rank in range(2):
            assert job.driver_mode(rank) == GENERIC
            assert f"xdp zero-copy: {NO_NATIVE}; xdp native copy: {NO_NATIVE}" in job.log(rank)
        assert_bypassed(job)


def test_left_the_choice(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec(enis=2))
    _stack_device(lab, "macvlan")
    with Job(lab, plugin_file, words=FEW, env={"HARP_DRIVER": "auto"}, ifname=UPPER) as job:
        job.finish()
        assert job.driver_mode(0) == "udp gso+gro"


def test_nothing_is_merged_below_a_stacked_device(make_lab: MakeLab, plugin_file: Path) -> None:
    """There is no program on the ENI below, where the kernel merges what a socket wants merged: none does."""
    lab = make_lab(LabSpec(enis=2, offload=Offload.SEGMENT))
    _stack_device(lab, "macvlan")
    add_ip6(lab, UPPER)
    for name in lab.hosts:  # single packets would leave one by one, and nothing would be there to merge
        run_command(run_inside(name, "sh", "-c", f"cd /sys/class/net/{ENI} && {GATHER}"))
    words = ("--iters", "100", "--warmup", "2")
    with Job(lab, plugin_file, sizes="1M", words=words, env={**IP6, **XDP}, ifname=UPPER) as job:
        job.finish()
        assert [job.driver_mode(rank) for rank in range(2)] == [GENERIC, GENERIC]
        assert job.statistics_of(0)["lost_packets"] < 0.02 * job.statistics_of(0)["tx_packets"]


def test_nothing_is_merged_below_a_generic_program(make_lab: MakeLab, plugin_file: Path) -> None:
    """IPv6 packets have a checksum, so the kernel could merge them; not where a generic program is."""
    lab = make_lab(LabSpec(enis=2, offload=Offload.SEGMENT))
    add_ip6(lab)
    words = ("--iters", "100", "--warmup", "2")
    with Job(lab, plugin_file, sizes="1M", words=words, env=IP6, rank_env=(XDP, XDP)) as job:
        job.finish()
        counted = job.statistics_of(1)
        assert counted["rx_superframes"] == counted["rx_packets"] > 1000
        assert not any(counted[f"drop_{reason}"] for reason in ("SHORT", "FIELD", "CRC"))
