"""Zero-copy AF_XDP on a real NIC driver: two guests whose virtio_net binds it, and one wire between them.

The wire is a socket that the two qemus share. eth0 has VIRTIO_F_ACCESS_PLATFORM, without which virtio_net
refuses zero-copy, as it does on eth1. The ranks meet over eth0 too, so the kernel's own packets must pass.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harpctl.bench.perf import PerfReport, parse_report
from tests.lab.job import statistics_of
from tests.vm.image import write_filesystem
from tests.vm.machine import Machine, Shape
from tests.vm.xdp_image import guest_image

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

MEMORY_MIB = 1024
PROCESSORS = 2
SIZES = "1,8,127,1000,4096,16385,64K,1M"
MESSAGES = 40
JOB_TIMEOUT_S = 240
ZERO_COPY_NIC = "iommu_platform=on,disable-legacy=on"
ADDRESS = {4: "10.7.{nic}.{host}", 6: "fd07:{nic}::{host}"}
PREFIX = {4: 24, 6: 64}
MEETING_PORT = 20500
# What AF_XDP would leave: programs on interfaces, their maps and links, sockets on queues.
LEFT = """\
bpftool -j net show
bpftool -j prog show name harp_filter
bpftool -j link show
bpftool -j map show
grep -c . /proc/net/xdp 2>/dev/null
"""


class End(NamedTuple):
    """How one rank ended."""

    code: int
    log: str


class Guest:
    """A machine, and the rank that it plays."""

    def __init__(self, machine: Machine, host: int) -> None:
        self.machine = machine
        self.host = host
        self.machine.run("mount -o ro /dev/vdb /mnt")
        for nic in range(2):
            addresses = "".join(
                f"ip address add {ADDRESS[version].format(nic=nic, host=host)}/{PREFIX[version]} dev eth{nic}"
                f"{' nodad' if version == 6 else ''}\n"
                for version in ADDRESS
            )
            self.machine.run(f"{addresses}ip link set eth{nic} up")

    def start(self, environment: str, words: str) -> None:
        """Start harp-perf in the background."""
        self.machine.run(
            "cd /run; rm -f code\n"
            f"(timeout {JOB_TIMEOUT_S} env {environment} /mnt/harp-perf --plugin /mnt/libnccl-net.so"
            f" --rank {self.host - 1} --nranks 2 --log info {words} >report 2>log; echo $? >code.new; mv code.new code)"
            " </dev/null >/dev/null 2>&1 &"
        )

    def wait(self) -> End:
        """Wait until harp-perf has ended."""
        self.machine.run("until [ -f /run/code ]; do sleep 0.2; done", JOB_TIMEOUT_S + 30)
        return End(int(self.machine.run("cat /run/code")), self.machine.run("cat /run/log"))

