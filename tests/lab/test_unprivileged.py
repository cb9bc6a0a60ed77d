# SPDX-License-Identifier: Apache-2.0
"""Ranks as most containers start them: no capability, and socket buffers of a kernel's default limits.

All connections of an engine share such a buffer. What a full send buffer refuses leaves later: it is no loss.
What a full receive buffer drops is one: peers keep within the window that it announces, so it never is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import Command
from harplab.lab.lab import Lab, run_command
from harplab.lab.privileges import DEFAULT_BUFFER_BYTES
from harplab.lab.spec import LabSpec
from tests.lab.job import ENI, Job

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]

CAP_MBPS = 4000.0
UDP = {"HARP_DRIVER": "udp"}  # TCP connections have buffers of their own
SENDERS = 8
FEW_FILES = 90  # a 16th of them may be connected sockets
SIZE_BYTES = 512 << 10
TOTAL_BYTES = 384 << 20  # three quarters of a second at the cap
BUFFER = f"{DEFAULT_BUFFER_BYTES >> 10} KiB socket buffer"
PRIVILEGES = """
import json, socket
found = {}
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name, force in ("SO_RCVBUF", 33), ("SO_SNDBUF", 32):
    option = getattr(socket, name)
    out.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
    found[name] = out.getsockopt(socket.SOL_SOCKET, option)
    try:
        out.setsockopt(socket.SOL_SOCKET, force, 8 << 20)
        found[name + "FORCE"] = 0
    except OSError as error:
        found[name + "FORCE"] = error.errno
out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
found["less"] = out.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
with open("/proc/self/status") as status:
    found["capabilities"] = [line.split()[1] for line in status if line.startswith(("CapEff", "CapPrm"))]
print(json.dumps(found))
"""


def _count_overflows(lab: Lab) -> int:
    """Count what the kernels of the hosts dropped because the socket's receive buffer was full."""
    total = 0
    for host in range(len(lab.hosts)):
        text = run_command(Command(tuple(lab.command(host, ["cat", "/proc/net/snmp"]))))
        names, figures = (line.split() for line in text.splitlines() if line.startswith("Udp:"))
        total += int(figures[names.index("RcvbufErrors")])
    return total


def _queue_drops(lab: Lab) -> int:
    """Count the packets that the caps of the links have dropped."""
    total = 0
    for host in range(len(lab.hosts)):
        words = ["tc", "-s", "-j", "qdisc", "show", "dev", ENI]
        text = run_command(Command(tuple(lab.command(host, words))))
        total += sum(int(qdisc["drops"]) for qdisc in json.loads(text))
    return total


def test_what_a_process_may(make_lab: MakeLab) -> None:
    """The kernel reports twice what it grants, and refuses more than the limit with EPERM."""
    lab = make_lab(LabSpec(unprivileged=True))
    output = run_command(Command(tuple(lab.command(0, [sys.executable, "-c", PRIVILEGES]))))
    twice = 2 * DEFAULT_BUFFER_BYTES
    assert json.loads(output) == {
        "SO_RCVBUF": twice,
        "SO_SNDBUF": twice,
        "SO_RCVBUFFORCE": 1,
        "SO_SNDBUFFORCE": 1,
        "less": 2 * 65536,
        "capabilities": ["0" * 16] * 2,
    }


@pytest.mark.parametrize(
    ("connections", "paths", "engine", "mode"),
    [
        (1, 1, "inline", "stream"),
        (16, 1, "thread", "stream"),
        (8, 1, "inline", "bidir"),
        (8, 8, "inline", "stream"),
    ],
)
def test_connections_share_a_small_buffer(
    make_lab: MakeLab, plugin_file: Path, connections: int, paths: int, engine: str, mode: str
) -> None:
    lab = make_lab(LabSpec(enis=2, cap_mbps=CAP_MBPS, unprivileged=True))
    env = {**UDP, "HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    count = TOTAL_BYTES // SIZE_BYTES // connections
    words = ("--iters", str(count), "--warmup", "4", "--connections", str(connections))
    with Job(lab, plugin_file, mode=mode, sizes=str(SIZE_BYTES), words=words, env=env) as job:
        report = job.finish()
        counted = job.statistics()
        assert all(BUFFER in job.log(rank) for rank in range(2))
        assert counted["messages_sent"] == counted["messages_received"] > 0
    overflows = _count_overflows(lab)
    print(
        f"{mode}, {connections} connection(s), {paths} path(s), {engine}: "
        f"{report.results[0].algbw_gbps:.2f} Gbit/s; {counted['tx_deferred']} sends deferred, "
        f"{counted['tx_acks']} acknowledgements of {counted['tx_superframes']} superframes, "
        f"{counted['lost_packets']} of {counted['tx_packets']} packets taken for lost"
    )
    assert overflows == 0
    assert counted["tx_busy"] == 0
    # What a busy machine delays for too long is taken for lost: it arrives twice, or is acknowledged before
    # it is sent again. A path that probes or goes DOWN may give up all that it has in flight.
    late = counted["drop_DUPLICATE"] + counted["spurious_losses"]
    if not counted["path_down"] and not counted["probe_timeouts"]:
        assert counted["lost_packets"] <= _queue_drops(lab) + late


@pytest.mark.parametrize(("unprivileged", "engine"), [(True, "thread"), (False, "inline")])
def test_incast(make_lab: MakeLab, plugin_file: Path, unprivileged: bool, engine: str) -> None:
    """Eight processes send to one, 64 connections in all; most of them wait for cores, and so does it."""
    lab = make_lab(LabSpec(hosts=1 + SENDERS, enis=2, unprivileged=unprivileged))
    words = ("--iters", "6", "--warmup", "2", "--connections", "8", "--no-check")
    env = {**UDP, "HARP_ENGINE": engine}
    with Job(lab, plugin_file, mode="incast", sizes="8,4K,512K", words=words, env=env) as job:
        job.finish()
        counted = job.statistics()
    assert counted["messages_sent"] == counted["messages_received"] > 0
    assert _count_overflows(lab) == 0


def test_peers_share_a_buffer(make_lab: MakeLab, plugin_file: Path) -> None:
    """Only some peers get a connected socket where files are few: the packets of the others come to one."""
    lab = make_lab(LabSpec(hosts=1 + SENDERS, enis=2, unprivileged=True))
    words = ("--iters", "40", "--warmup", "2", "--no-check")
    few = ("prlimit", f"--nofile={FEW_FILES}")
    with Job(lab, plugin_file, mode="incast", sizes=str(SIZE_BYTES), words=words, env=UDP, start_by=few) as job:
        job.finish()
    assert _count_overflows(lab) == 0


def test_small_messages(make_lab: MakeLab, plugin_file: Path) -> None:
    """Messages have every size, with as many connections as a rank of a small job has."""
    lab = make_lab(LabSpec(enis=2, cap_mbps=1000, unprivileged=True))
    words = ("--iters", "60", "--warmup", "4", "--connections", "8")
    with Job(lab, plugin_file, mode="bidir", sizes="1,8,1000,4096,16385,128K", words=words, env=UDP) as job:
        job.finish()
        assert all(BUFFER in job.log(rank) for rank in range(2))
    assert _count_overflows(lab) == 0
