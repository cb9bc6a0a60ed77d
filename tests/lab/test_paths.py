# SPDX-License-Identifier: Apache-2.0
"""Several paths over one ENI, as many as NICs of 25 and 100 Gbit/s have by default: every byte arrives right.

That a path of a busy machine is taken for dead now and then is nobody's error, so a test asserts that a path
went DOWN, never that none did; the figures are printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import ALL_SIZES, ENI, UNTIL_FINISHED, Job, drop_packets, dropped_packets, poll_until

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]

FEW = ("--iters", "12", "--warmup", "2")
FIRST_PORT = 21000
PORTS = 32
# What no network does to a packet, and no peer sends: each of them would be a bug of ours.
ERRORS = ("SHORT", "VERSION", "TYPE", "FIELD", "PATH", "CRC", "CONTRADICTION", "STALE_ACK", "DIRECTION")
PRINTED = ("probe_timeouts", "lost_packets", "spurious_losses", "tx_busy", "path_down", "path_up")


def _wait_for_paths(job: Job, paths: int) -> Counter[str]:
    """Wait for an orderly end over so many paths; return what was counted."""
    job.finish()
    counted = job.statistics()
    assert f"{paths} path(s) of datagrams, " in job.log(0)
    assert {name: counted[f"drop_{name}"] for name in ERRORS} == dict.fromkeys(ERRORS, 0)
    print(f"{paths} paths:", {name: counted[name] for name in PRINTED})
    return counted


@pytest.fixture
def ports(tmp_path: Path) -> dict[str, str]:
    """Provide the environment of ranks that bind known ports, the first path FIRST_PORT."""
    text = f"[eni]\ninterface = {ENI}\n[transport]\nports = {FIRST_PORT}-{FIRST_PORT + PORTS - 1}\n"
    (tmp_path / "ztcp0.conf").write_text(text)
    return {"HARP_CONF_DIR": str(tmp_path), "HARP_DRIVER": "udp"}


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("paths", "connections", "engine", "mode"),
    [
        (5, 1, "inline", "bidir"),
        (5, 3, "thread", "bidir"),
        (8, 1, "thread", "stream"),
        (8, 3, "inline", "bidir"),
        (8, 1, "inline", "alltoall"),
    ],
)
def test_a_clean_network(
    make_lab: MakeLab, plugin_file: Path, paths: int, connections: int, engine: str, mode: str
) -> None:
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_PATHS": str(paths), "HARP_ENGINE": engine}
    words = (*FEW, "--connections", str(connections))
    with Job(lab, plugin_file, mode=mode, sizes=ALL_SIZES, words=words, env=env) as job:
        counted = _wait_for_paths(job, paths)
        assert counted["messages_sent"] == counted["messages_received"] > 0


@pytest.mark.parametrize(("paths", "connections"), [(5, 1), (8, 4)])
def test_loss_and_reordering(make_lab: MakeLab, plugin_file: Path, paths: int, connections: int) -> None:
    lab = make_lab(LabSpec(enis=2, switch=True, offload=Offload.OFF, cap_mbps=1000))
    faults = lab.faults(1, 0).set(drop=0.01, reorder=0.05, reorder_ms=1)
    env = {"HARP_DRIVER": "udp", "HARP_PATHS": str(paths)}
    words = ("--iters", "60", "--warmup", "4", "--connections", str(connections))
    with Job(lab, plugin_file, mode="bidir", sizes="8,1000,16384,131072", words=words, env=env) as job:
        counted = _wait_for_paths(job, paths)
        assert faults.total("dropped") > 0
        assert faults.total("reordered") > 0
        assert counted["lost_packets"] > 0


@pytest.mark.parametrize(("paths", "connections"), [(5, 1), (8, 4)])
def test_a_path_dies(
    make_lab: MakeLab, plugin_file: Path, ports: dict[str, str], paths: int, connections: int
) -> None:
    """What one source port sends is lost from some moment on: the others carry all, and what it had."""
    lab = make_lab(LabSpec(enis=2, cap_mbps=400))
    env = {**ports, "HARP_PATHS": str(paths)}
    words = (*UNTIL_FINISHED, "--connections", str(connections))
    with Job(lab, plugin_file, mode="stream", sizes="64K", words=words, env=env) as job:
        job.until_moving()
        drop_packets(lab, 1, f"udp sport {FIRST_PORT}")
        poll_until("the path carries something", lambda: dropped_packets(lab, 1) > 0)
        job.until_moving(48 << 20)  # a second at the cap, in which the path is given up
        counted = _wait_for_paths(job, paths)
        assert counted["path_down"] > 0


def test_a_path_that_never_lived(make_lab: MakeLab, plugin_file: Path, ports: dict[str, str]) -> None:
    """A firewall passes some source ports only."""
    lab = make_lab(LabSpec(enis=2))
    drop_packets(lab, 1, f"udp sport {{ {FIRST_PORT}, {FIRST_PORT + 2} }}")
    env = {**ports, "HARP_PATHS": "8"}
    words = ("--iters", "60", "--warmup", "4", "--connections", "2")
    with Job(lab, plugin_file, mode="stream", sizes="8,64K,1M", words=words, env=env) as job:
        _wait_for_paths(job, 8)
        assert dropped_packets(lab, 1) > 0


def test_a_firewall_opens_ports_alone(
    make_lab: MakeLab, plugin_file: Path, ports: dict[str, str], tmp_path: Path
) -> None:
    """Datagrams, TCP for data and control connections arrive inside `ports`."""
    lab = make_lab(LabSpec())
    opened = f"{FIRST_PORT}-{FIRST_PORT + PORTS - 1}"
    rules = f"""table inet ports {{ chain input {{
        type filter hook input priority 0; policy drop;
        iif lo accept
        ct state established,related accept
        tcp dport {opened} accept
        udp dport {opened} accept
        meta l4proto {{ icmp, ipv6-icmp }} accept
    }}
    }}"""
    for host in lab.hosts[:2]:
        run_command(run_inside(host, "nft", "-f", "-", stdin=rules))
    env = {**ports, "HARP_DRIVER": "udp+tcp"}
    words = (*FEW, "--connections", "4")
    job = Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=words, env=env, meeting=tmp_path / "meeting")
    with job:
        job.finish()
        assert job.statistics()["rx_records"] > 0
        logs = job.log(0) + job.log(1)
        assert "no TCP port of" not in logs
        assert ":0)" not in logs  # a peer is named by its address alone, whichever side connects
