# SPDX-License-Identifier: Apache-2.0
"""Asks a lab for the tests of the xdp driver: XDP programs on its ENIs, what its sockets received."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from tests.conftest import PLUGIN_DIR
from tests.lab.job import ENI, Job, poll_until

GENERIC, NATIVE, ZERO_COPY = "xdp generic copy", "xdp native copy", "xdp zero-copy"
XDP = {"HARP_DRIVER": "xdp"}
UDP = {"HARP_DRIVER": "udp"}
IP6 = {"NCCL_SOCKET_FAMILY": "AF_INET6"}
MODES = {1: "native", 2: "generic", 3: "offload", 4: "several"}
SOURCES = (
    "io/xdp/filter",
    "io/xdp/program",
    "io/xdp/bpf",
    "io/xdp/socket",
    "io/xdp/queue",
    "io/nic",
    "base/address",
    "base/assert",
    "base/error",
    "base/files",
    "base/log",
    "base/netlink",
    "base/shortage",
    "base/text_file",
)
HOLDER_WORDS = [str(PLUGIN_DIR / "src" / f"{name}.c") for name in SOURCES]


def attached_program(lab: Lab, host: int, ifname: str = ENI) -> str:
    """Return mode and name of the XDP program on an ENI, as in "generic harp_filter_3"; "" for none."""
    shown = run_command(ip_inside(lab.hosts[host], "-details", "-json", "link", "show", "dev", ifname))
    xdp = json.loads(shown)[0].get("xdp")
    return f"{MODES[xdp['mode']]} {xdp['prog']['name']}" if xdp and xdp.get("mode") else ""


def add_ip6(lab: Lab, ifname: str = ENI) -> None:
    """Add IPv6 addresses to the ENIs of all hosts, fd77::<host + 1>."""
    for host, name in enumerate(lab.hosts):
        run_command(ip_inside(name, "address", "add", f"fd77::{host + 1}/64", "dev", ifname, "nodad"))


def socket_datagrams(lab: Lab, host: int) -> int:
    """Count the datagrams that the sockets of a host have been given."""
    four = run_command(run_inside(lab.hosts[host], "cat", "/proc/net/snmp"))
    six = run_command(run_inside(lab.hosts[host], "cat", "/proc/net/snmp6"))
    names, values = re.findall(r"^Udp: (.*)$", four, re.MULTILINE)
    count = dict(zip(names.split(), values.split(), strict=True))["InDatagrams"]
    found = re.search(r"^Udp6InDatagrams\s+(\d+)$", six, re.MULTILINE)
    return int(count) + (int(found[1]) if found else 0)


def until_connected(job: Job, rank: int) -> None:
    """Wait until a rank has a connection; its driver is open then."""
    poll_until(f"rank {rank} is connected", lambda: "connected to" in job.log(rank))


def assert_bypassed(job: Job) -> None:
    """Nearly all packets of an ended job went past the kernel's sockets, and no driver fell."""
    for rank in range(job.count):
        counted = job.statistics_of(rank)
        through_sockets = socket_datagrams(job.lab, rank)
        assert counted["driver_fallbacks"] == 0
        assert counted["rx_packets"] > 1000
        received = counted["rx_superframes"]  # a packet each from AF_XDP, a datagram each from a socket
        assert through_sockets < received / 8, f"{through_sockets} of {received}"  # while paths are new


@contextlib.contextmanager
def hold_queue(
    lab: Lab, host: int, program: Path, whose: str, mode: str, *queue: str, ifname: str = ENI
) -> Iterator[None]:
    """Hold an XDP program on an interface of a host (xdp_hold.c)."""
    argv = lab.command(host, [str(program), whose, mode, ifname, *queue])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield
        finally:
            holder.kill()
