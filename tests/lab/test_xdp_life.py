# SPDX-License-Identifier: Apache-2.0
"""Events of an ENI that AF_XDP uses: no wrong byte, no hang; the job goes on or reports why not."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec
from tests.lab.job import ENI, EXIT_PLUGIN, UNTIL_FINISHED, Job, poll_until, statistics_of
from tests.lab.remote import RemotePeer, connect_peers, transfer_messages
from tests.lab.xdp import GENERIC, NATIVE, UDP, XDP, attached_program, hold_queue, until_connected

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
LONG = ("--iters", "10000000", "--warmup", "1", "--timeout", "60")
NEW_MAC = "02:48:41:52:50:01"
FALLEN = "AF_XDP disabled: "
IDLE_PASSES_MAX = 200_000
ENGINES = pytest.mark.parametrize("engine", ["inline", "thread"])


def _make_job(lab: Lab, plugin: Path, words: tuple[str, ...], **env: str) -> Job:
    return Job(lab, plugin, mode="bidir", sizes="256K", words=words, env={**XDP, **env})


def _set_link(lab: Lab, host: int, *words: str) -> None:
    run_command(ip_inside(lab.hosts[host], "link", "set", "dev", ENI, *words))


def _let_time_pass(seconds: float) -> None:
    """Let the job feel it for a while."""
    start = time.monotonic()
    poll_until("some time has passed", lambda: time.monotonic() > start + seconds)


def test_sends_that_reach_nobody(make_lab: MakeLab, plugin_file: Path) -> None:
    """A NIC that loses what AF_XDP sends and says that it was sent: the job goes on with sockets.

    Sockets mark what they send, and the peer drops the rest.
    """
    lab = make_lab(LabSpec(enis=2))
    for host, hook, rule in (
        (1, "output", "meta l4proto udp ip dscp set af11"),
        (0, "input", "meta l4proto udp ip dscp != af11 drop"),
    ):
        table = f"table inet lost {{\n chain one {{\n type filter hook {hook} priority 0;\n {rule}\n }}\n}}\n"
        run_command(run_inside(lab.hosts[host], "nft", "-f", "-", stdin=table))
    words, env = UNTIL_FINISHED, {"HARP_STALL_TIME": "2"}
    with Job(lab, plugin_file, mode="bidir", sizes="256K", words=words, env=env, rank_env=(UDP, XDP)) as job:
        poll_until("sockets are used", lambda: "continuing with sockets to this peer" in job.log(1))
        job.until_moving()
        job.finish(may_fall_back=True)
        assert "continuing with sockets to this peer" not in job.log(0)


@ENGINES
def test_own_link_flaps(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """Who notices by a send goes on with sockets, else with AF_XDP; the peer keeps that, and data flows."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, UNTIL_FINISHED, HARP_ENGINE=engine) as job:
        job.until_moving()
        lab.set_link(1, 0, up=False)
        _let_time_pass(0.5)
        lab.set_link(1, 0, up=True)
        job.until_moving()
        job.finish(may_fall_back=True)
        falls = job.statistics_of(1)["driver_fallbacks"]
        assert job.log(1).count(f"{FALLEN}the interface went down; continuing with udp gso+gro") == falls
        assert job.statistics_of(0)["driver_fallbacks"] == 0
    assert [attached_program(lab, host) for host in range(2)] == ["", ""]


def test_channels_are_added(make_lab: MakeLab, plugin_file: Path) -> None:
    """Packets that come in on a queue which is not ours take the way through the sockets; no fall."""
    lab = make_lab(LabSpec(enis=2, queues=2))
    run_command(run_inside(lab.hosts[1], "ethtool", "-L", ENI, "rx", "1", "tx", "1"))
    with _make_job(lab, plugin_file, UNTIL_FINISHED, HARP_PATHS="4") as job:
        until_connected(job, 1)
        assert job.queues(1) == "queue 0"
        job.until_moving()
        run_command(run_inside(lab.hosts[1], "ethtool", "-L", ENI, "rx", "2", "tx", "2"))
        job.until_moving()
        job.finish()


def test_switch_port_flaps(make_lab: MakeLab, plugin_file: Path) -> None:
    """The carrier stays: packets are lost, that is all."""
    lab = make_lab(LabSpec(enis=2, switch=True))
    with _make_job(lab, plugin_file, UNTIL_FINISHED) as job:
        job.until_moving()
        for _ in range(3):
            run_command(ip_inside(f"{lab.prefix}fabric", "link", "set", "br0", "down"))
            _let_time_pass(0.2)
            run_command(ip_inside(f"{lab.prefix}fabric", "link", "set", "br0", "up"))
            job.until_moving()
        job.finish()


def test_peer_of_the_veth_is_deleted(make_lab: MakeLab, plugin_file: Path) -> None:
    """Both ends are gone with their addresses; the job ends, with an error that names the ENI."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, LONG, HARP_PEER_TIMEOUT="2") as job:
        job.until_moving()
        run_command(ip_inside(lab.hosts[1], "link", "delete", ENI))
        assert EXIT_PLUGIN in job.wait()
        assert all(child.returncode > 0 for child in job.ranks)
        assert any(ENI in warn for rank in range(2) for warn in job.warns(rank))


@ENGINES
def test_idle_on_a_deleted_eni(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """Nothing spins on a socket whose interface is gone."""
    lab = make_lab(LabSpec(enis=2))
    env = {**XDP, "HARP_ENGINE": engine}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        connect_peers(receiver, sender)
        transfer_messages(receiver, sender, 8, 100_000)
        run_command(ip_inside(lab.hosts[0], "link", "delete", ENI))
        receiver.call("hushed", 1.0)
        sender.child.kill()
        assert statistics_of("\n".join(receiver.call("close")))["passes"] < IDLE_PASSES_MAX


def test_address_is_removed_for_a_while(make_lab: MakeLab, plugin_file: Path) -> None:
    """AF_XDP does not need the kernel to have it; the control connection and new next hops do."""
    lab = make_lab(LabSpec(enis=2))
    address = ("address", "{}", f"{lab.address(1)}/24", "dev", ENI)
    with _make_job(lab, plugin_file, UNTIL_FINISHED) as job:
        job.until_moving()
        for verb in ("delete", "add"):
            run_command(ip_inside(lab.hosts[1], *(word.format(verb) for word in address)))
            _let_time_pass(0.3)
        job.until_moving()
        job.finish(may_fall_back=True)


@pytest.mark.parametrize("mtu_bytes", [1280, 1500])
def test_mtu_shrinks(make_lab: MakeLab, plugin_file: Path, mtu_bytes: int) -> None:
    """Packets of the old size are lost until the paths have found the new one."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=3498))
    with _make_job(lab, plugin_file, UNTIL_FINISHED) as job:
        job.until_moving()
        for host in range(2):
            _set_link(lab, host, "mtu", str(mtu_bytes))
        job.until_moving()
        job.finish(may_fall_back=True)


def test_mtu_grows(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, UNTIL_FINISHED) as job:
        job.until_moving()
        for host in range(2):
            _set_link(lab, host, "mtu", "9000")
        job.until_moving()
        job.finish()


def test_mac_address_changes(make_lab: MakeLab, plugin_file: Path) -> None:
    """A peer's ENI is replaced: packets to the old address are nobody's, and ARP finds the new one."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, UNTIL_FINISHED) as job:
        job.until_moving()
        _set_link(lab, 1, "address", NEW_MAC)
        run_command(run_inside(lab.hosts[1], "ping", "-c", "1", "-W", "5", lab.address(0)))
        job.until_moving()
        job.finish()
        shown = run_command(ip_inside(lab.hosts[0], "neighbour", "show", lab.address(1), "dev", ENI))
        assert NEW_MAC in shown


def test_frames_carry_the_new_address(make_lab: MakeLab, plugin_file: Path) -> None:
    """A cloud drops what comes from another MAC address than the ENI's."""
    lab = make_lab(LabSpec(enis=2, switch=True))
    with _make_job(lab, plugin_file, LONG) as job:
        job.until_moving()
        _set_link(lab, 1, "address", NEW_MAC)
        run_command(run_inside(lab.hosts[1], "ping", "-c", "1", "-W", "5", lab.address(0)))
        job.until_moving(8 << 20)
        fabric = f"{lab.prefix}fabric"
        rule = (
            "table netdev harp_mac { chain c {\n"
            'type filter hook ingress device "h1eni0" priority 0; policy accept;\n'
            f"meta l4proto udp ether saddr {NEW_MAC} counter\n"
            f"meta l4proto udp ether saddr != {NEW_MAC} counter\n}}\n}}\n"
        )

        def only_new() -> bool:
            run_command(run_inside(fabric, "nft", "-f", "-", stdin=rule))
            job.until_moving(8 << 20)
            listed = run_command(run_inside(fabric, "nft", "list", "table", "netdev", "harp_mac"))
            run_command(run_inside(fabric, "nft", "delete", "table", "netdev", "harp_mac"))
            new, old = (int(count) for count in re.findall(r"counter packets (\d+)", listed))
            return new > 100 and old == 0

        poll_until("all frames carry the new address", only_new)  # the driver looks every 50 ms


@ENGINES
def test_a_forked_child_keeps_nothing(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """Queue, program and port are free when their process has closed them, and when it was killed."""
    lab = make_lab(LabSpec(enis=2))
    conf = {"HARP_DRIVER": "xdp", "HARP_ENGINE": engine}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RemotePeer(lab, 0, plugin_file, conf)) for _ in range(2)]
        assert peers[0].call("listened")
        stack.callback(os.kill, peers[0].call("fork"), signal.SIGKILL)
        peers[0].call("close")
        poll_until("the program is gone", lambda: attached_program(lab, 0) == "")
        sockets = run_inside(lab.hosts[0], "ss", "-H", "-n", "-l", "--udp")
        poll_until("the port is free", lambda: run_command(sockets) == "")
        assert peers[0].call("listened")
        stack.callback(os.kill, peers[0].call("fork"), signal.SIGKILL)
        peers[0].child.kill()
        peers[0].child.wait()
        assert peers[1].call("listened")


def test_native_program_goes_with_its_holder(make_lab: MakeLab, plugin_file: Path, xdp_hold: Path) -> None:
    """Who attached it may end first: the others hold it too."""
    lab = make_lab(LabSpec(enis=2))
    with hold_queue(lab, 1, xdp_hold, "harp", "native"):
        job = _make_job(lab, plugin_file, UNTIL_FINISHED).__enter__()
        until_connected(job, 1)
    try:
        assert attached_program(lab, 1).startswith("native")
        job.until_moving()
        job.finish()
        assert [job.driver_mode(0), job.driver_mode(1)] == [GENERIC, NATIVE]
    finally:
        job.__exit__(None, None, None)
    assert attached_program(lab, 1) == ""
