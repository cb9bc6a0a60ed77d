# SPDX-License-Identifier: Apache-2.0
"""Checked transfers over AF_XDP, alone and with a peer that uses sockets; nothing of it stays attached."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import ALL_SIZES, UNTIL_FINISHED, Job, poll_until
from tests.lab.xdp import (
    GENERIC,
    IP6,
    NATIVE,
    UDP,
    XDP,
    add_ip6,
    assert_bypassed,
    attached_program,
    hold_queue,
    until_connected,
)

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
FEW = ("--iters", "24", "--warmup", "4")
MODE_OF = {GENERIC: "generic", NATIVE: "native"}
KILLS, MANY_KILLS = 8, 1000


@pytest.mark.parametrize(
    ("mode", "ip6", "mtu_bytes", "engine", "paths", "offload"),
    [
        (GENERIC, False, 1500, "inline", 1, Offload.STOCK),
        (GENERIC, False, 3498, "thread", 4, Offload.OFF),
        (GENERIC, False, 9000, "inline", 4, Offload.STOCK),
        (GENERIC, True, 1500, "thread", 4, Offload.SEGMENT),
        (GENERIC, True, 3498, "inline", 1, Offload.STOCK),
        (GENERIC, True, 9000, "thread", 1, Offload.OFF),
        (NATIVE, False, 1500, "thread", 4, Offload.STOCK),
        (NATIVE, False, 3498, "inline", 1, Offload.OFF),
        (NATIVE, False, 3600, "inline", 1, Offload.STOCK),
        (NATIVE, False, 9000, "thread", 4, Offload.STOCK),
        (NATIVE, True, 1280, "inline", 4, Offload.STOCK),
        (NATIVE, True, 9000, "inline", 1, Offload.SEGMENT),
    ],
)
def test_checked_transfer(
    make_lab: MakeLab,
    plugin_file: Path,
    xdp_hold: Path,
    mode: str,
    ip6: bool,
    mtu_bytes: int,
    engine: str,
    paths: int,
    offload: Offload,
) -> None:
    """On veth the driver takes generic mode by itself; native where a process of HARP has attached that."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=mtu_bytes, offload=offload))
    env = {**XDP, "HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    if ip6:
        add_ip6(lab)
        env.update(IP6)
    with contextlib.ExitStack() as stack:
        for host in range(2 if mode == NATIVE else 0):
            stack.enter_context(hold_queue(lab, host, xdp_hold, "harp", "native"))
        with Job(lab, plugin_file, mode="bidir", words=UNTIL_FINISHED, env=env) as running:
            for host in range(2):
                until_connected(running, host)
                assert attached_program(lab, host) == f"{MODE_OF[mode]} harp_filter_3"
            running.until_moving()
            running.finish()
        job = stack.enter_context(Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=FEW, env=env))
        job.finish()
        assert [job.driver_mode(rank) for rank in range(2)] == [mode, mode]
        assert_bypassed(job)
    assert [attached_program(lab, host) for host in range(2)] == ["", ""]


@pytest.mark.parametrize(
    ("drivers", "ip6", "mtu_bytes", "engine", "offload"),
    [
        ((XDP, UDP), False, 1500, "inline", Offload.STOCK),
        ((UDP, XDP), False, 9000, "thread", Offload.OFF),
        ((UDP, XDP), True, 1500, "thread", Offload.SEGMENT),
        ((XDP, UDP), True, 9000, "inline", Offload.STOCK),
    ],
)
def test_with_a_peer_on_sockets(
    make_lab: MakeLab,
    plugin_file: Path,
    drivers: tuple[dict[str, str], dict[str, str]],
    ip6: bool,
    mtu_bytes: int,
    engine: str,
    offload: Offload,
) -> None:
    """Data goes both ways; what the peer's kernel sends uncut must arrive, and not be lost over and over."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=mtu_bytes, offload=offload))
    env = {"HARP_ENGINE": engine, "HARP_PATHS": "2"}
    if ip6:
        add_ip6(lab)
        env.update(IP6)
    words = ("--iters", "24", "--warmup", "4")
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=words, env=env, rank_env=drivers) as job:
        job.finish()
        assert {job.driver_mode(0), job.driver_mode(1)} == {GENERIC, "udp gso+gro"}
        counted = job.statistics()
        assert counted["driver_fallbacks"] == 0
        assert counted["lost_packets"] < counted["tx_packets"] / 10


def _kill_and_look(lab: Lab, plugin: Path, times: int) -> None:
    """Kill both ranks in mid-transfer; the kernel takes the program away when the process is gone."""
    words = ("--iters", "10000000", "--warmup", "1")
    for turn in range(times):
        with Job(lab, plugin, mode="bidir", words=words, env=XDP) as job:
            until_connected(job, 0)
            job.until_moving(1 + (turn * 37 % 20 << 16))
            assert attached_program(lab, turn % 2).startswith("generic ")
            for rank in job.ranks:
                rank.kill()
            job.wait()
        poll_until("nothing is attached", lambda: not attached_program(lab, 0) and not attached_program(lab, 1))


def test_killed(make_lab: MakeLab, plugin_file: Path) -> None:
    _kill_and_look(make_lab(LabSpec(enis=2)), plugin_file, KILLS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_a_thousand_times(make_lab: MakeLab, plugin_file: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--xdp"):
        pytest.skip("asked for with --xdp")
    _kill_and_look(make_lab(LabSpec(enis=2)), plugin_file, MANY_KILLS)
