# SPDX-License-Identifier: Apache-2.0
"""AF_XDP on an ENI that others use: foreign traffic, other HARP processes, other XDP programs."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec
from tests.lab.job import ENI, EXIT_PLUGIN, Job, poll_until
from tests.lab.remote import ROOT
from tests.lab.xdp import (
    GENERIC,
    NATIVE,
    XDP,
    add_ip6,
    assert_bypassed,
    attached_program,
    hold_queue,
    socket_datagrams,
    until_connected,
)

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
ECHO_PORT = 7007
OTHER = "other0"
LONG = ("--iters", "10000000", "--warmup", "1")
FEW = ("--iters", "24", "--warmup", "4")
TALK_S = 90


def _start_bystander(lab: Lab, host: int, *words: str) -> subprocess.Popen[str]:
    argv = lab.command(host, [sys.executable, "-m", "tests.lab.bystander", *words])
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _run_talker(lab: Lab, host: int, *words: str) -> dict[str, int]:
    with _start_bystander(lab, host, *words) as talker:
        output, _ = talker.communicate(timeout=TALK_S)
        assert talker.returncode == 0
    counts: dict[str, int] = json.loads(output)
    return counts


@contextlib.contextmanager
def _run_echo(lab: Lab, host: int, port: int = ECHO_PORT) -> Iterator[None]:
    with _start_bystander(lab, host, "echo", str(port)) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield
        finally:
            server.kill()


def _udp_ports(lab: Lab, host: int) -> set[int]:
    shown = run_command(run_inside(lab.hosts[host], "ss", "-H", "-n", "-l", "--udp"))
    return {int(line.split()[3].rpartition(":")[2]) for line in shown.splitlines()}


def _count_reassembled(lab: Lab, host: int) -> int:
    text = run_command(run_inside(lab.hosts[host], "cat", "/proc/net/snmp"))
    names, values = re.findall(r"^Ip: (.*)$", text, re.MULTILINE)
    return int(dict(zip(names.split(), values.split(), strict=True))["ReasmOKs"])


@pytest.mark.parametrize("mode", ["generic", "native"])
def test_foreign_traffic(make_lab: MakeLab, plugin_file: Path, xdp_hold: Path, mode: str) -> None:
    """TCP, UDP, fragments, ping and neighbour discovery go on as if nobody used AF_XDP."""
    lab = make_lab(LabSpec(enis=2))
    add_ip6(lab)
    with contextlib.ExitStack() as stack:
        for host in range(2 if mode == "native" else 0):
            stack.enter_context(hold_queue(lab, host, xdp_hold, "harp", "native"))
        job = stack.enter_context(Job(lab, plugin_file, mode="bidir", words=LONG, env=XDP))
        until_connected(job, 0)
        job.until_moving()
        stack.enter_context(_run_echo(lab, 0))
        for name in lab.hosts:
            run_command(ip_inside(name, "-6", "neighbour", "flush", "dev", ENI))
        addresses = [lab.address(0), "fd77::1"]
        assert _run_talker(lab, 1, "talk", str(ECHO_PORT), *addresses) == {"datagrams": 14, "streams": 2}
        for address in addresses:
            run_command(run_inside(lab.hosts[1], "ping", "-c", "3", "-i", "0.01", "-s", "4000", address))
        assert [attached_program(lab, host).split()[0] for host in range(2)] == [mode, mode]
        job.until_moving()


def test_fragments_to_our_port(make_lab: MakeLab, plugin_file: Path) -> None:
    """Only the kernel can put them together."""
    lab = make_lab(LabSpec(enis=2))
    with Job(lab, plugin_file, words=LONG, env=XDP) as job:
        until_connected(job, 0)
        port = min(_udp_ports(lab, 0))
        before = _count_reassembled(lab, 0)
        program = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
            f"[s.sendto(bytes(4000), ({lab.address(0)!r}, {port})) for _ in range(20)]"
        )
        run_command(run_inside(lab.hosts[1], sys.executable, "-c", program))
        poll_until("fragments are put together", lambda: _count_reassembled(lab, 0) > before)
        job.until_moving()


def test_tagged_frames_to_our_port(make_lab: MakeLab, plugin_file: Path) -> None:
    """Tagged frames are another network's, whatever the addresses in them."""
    lab = make_lab(LabSpec(enis=2))
    with Job(lab, plugin_file, words=LONG, env=XDP) as job:
        until_connected(job, 0)
        with _start_bystander(lab, 0, "watch", ENI) as watcher:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == "ready\n"
            port = str(min(_udp_ports(lab, 0)))
            sent = _run_talker(lab, 1, "tagged", ENI, lab.address(1), lab.address(0), port)
            assert json.loads(watcher.communicate(timeout=TALK_S)[0]) == {"seen": sent["frames"]}
        job.until_moving()


def _write_conf(folder: Path, queues: int) -> dict[str, str]:
    folder.mkdir()
    (folder / "ztcp0.conf").write_text(f"[eni]\ninterface = {ENI}\nqueues = {queues}\n")
    return {**XDP, "HARP_CONF_DIR": str(folder)}


def _read_ifindex(lab: Lab, host: int) -> int:
    shown = run_command(ip_inside(lab.hosts[host], "-json", "link", "show", "dev", ENI))
    return int(json.loads(shown)[0]["ifindex"])


def test_two_jobs_share_an_eni(make_lab: MakeLab, plugin_file: Path, xdp_hold: Path, tmp_path: Path) -> None:
    """Each takes a queue; the second joins its own ENI's program; another host has one of that number."""
    lab = make_lab(LabSpec(enis=2, queues=2))
    number = str(_read_ifindex(lab, 0))
    assert _read_ifindex(lab, 1) != int(number)
    run_command(ip_inside(lab.hosts[1], "link", "add", OTHER, "index", number, "type", "veth"))
    env = _write_conf(tmp_path / "conf", queues=1)
    with (
        hold_queue(lab, 1, xdp_hold, "harp", "generic", ifname=OTHER),
        Job(lab, plugin_file, mode="bidir", words=LONG, env=env) as first,
    ):
        until_connected(first, 0)
        until_connected(first, 1)
        with Job(lab, plugin_file, mode="bidir", words=FEW, env=env, port=20600) as second:
            second.finish()
            assert [second.driver_mode(0), second.driver_mode(1)] == [GENERIC, GENERIC]
            assert {first.queues(0), second.queues(0)} == {"queue 0", "queue 1"}
        assert attached_program(lab, 0)
        first.until_moving()


def test_ports_that_lead_to_our_queues(
    make_lab: MakeLab, plugin_file: Path, xdp_hold: Path, tmp_path: Path
) -> None:
    """The peer's packets are spread over queues by their ports; it learns which ports lead to ours.

    In native mode: a generic program leaves all packets of a peer on sockets to the kernel. Packets come from
    the socket until it is learned, which takes some round trips; without it half of the jobs would get
    most of theirs from there.
    """
    lab = make_lab(LabSpec(enis=2, queues=2))
    env = _write_conf(tmp_path / "conf", queues=1)
    sockets = {**env, "HARP_DRIVER": "udp"}
    words = ("--iters", "10000", "--warmup", "100")
    for turn in range(4):
        before = socket_datagrams(lab, 1)
        with (
            hold_queue(lab, 1, xdp_hold, "harp", "native"),
            Job(lab, plugin_file, words=words, env=env, rank_env=(sockets, {}), port=20500 + turn) as job,
        ):
            job.finish()
            assert job.driver_mode(1) == NATIVE
            assert job.queues(1) in {"queue 0", "queue 1"}  # the kernel may not have freed the last job's yet
            counted = job.statistics_of(1)
        assert counted["rx_packets"] > 200_000
        assert socket_datagrams(lab, 1) - before < counted["rx_superframes"] / 10


def test_no_queue_is_left(make_lab: MakeLab, plugin_file: Path) -> None:
    """A job that requires AF_XDP gets an error that it is taken; one that leaves the choice works."""
    lab = make_lab(LabSpec(enis=2))
    with Job(lab, plugin_file, mode="bidir", words=LONG, env=XDP) as first:
        until_connected(first, 0)
        until_connected(first, 1)
        with Job(lab, plugin_file, words=FEW, env=XDP, port=20600) as second:
            assert EXIT_PLUGIN in second.wait()
            assert "other processes have all 1 queues" in second.log(0) + second.log(1)
        with Job(lab, plugin_file, words=FEW, env={"HARP_DRIVER": "auto"}, port=20601) as third:
            third.finish()
            assert third.driver_mode(0) == "udp gso+gro"
        first.until_moving()


def test_ports_of_the_killed_are_forgotten(make_lab: MakeLab, plugin_file: Path, xdp_hold: Path) -> None:
    """The program lives on in another process; the ports are somebody else's later, the queue too."""
    lab = make_lab(LabSpec(enis=2))
    with hold_queue(lab, 0, xdp_hold, "harp", "generic"):
        with Job(lab, plugin_file, words=LONG, env=XDP) as killed:
            until_connected(killed, 0)
            ports = _udp_ports(lab, 0)
            killed.ranks[0].kill()
            killed.wait()
        with Job(lab, plugin_file, words=LONG, env=XDP) as job:
            until_connected(job, 0)
            port = min(ports - _udp_ports(lab, 0))
            with _run_echo(lab, 0, port):
                assert _run_talker(lab, 1, "hush", str(port), lab.address(0)) == {"datagrams": 1}


@pytest.mark.parametrize("mode", ["generic", "native"])
def test_foreign_program(make_lab: MakeLab, plugin_file: Path, xdp_hold: Path, mode: str) -> None:
    """A foreign program stays: a job that requires AF_XDP gets an error, one that leaves the choice works."""
    lab = make_lab(LabSpec(enis=2))
    with hold_queue(lab, 0, xdp_hold, "foreign", mode):
        with Job(lab, plugin_file, words=FEW, env=XDP) as job:
            assert EXIT_PLUGIN in job.wait()
            log = job.log(0)
            assert f"xdp {mode} copy: another XDP program is attached" in log
            other = "native" if mode == "generic" else "generic"
            assert f"xdp {other} copy: an XDP program is attached to the interface in {mode} mode" in log
        assert attached_program(lab, 0) == f"{mode} somebody"
        with Job(lab, plugin_file, words=FEW, env={"HARP_DRIVER": "auto"}) as job:
            job.finish()
        assert attached_program(lab, 0) == f"{mode} somebody"


def test_a_harp_program_in_the_other_mode(make_lab: MakeLab, plugin_file: Path, xdp_hold: Path) -> None:
    """A program of HARP is joined in its own mode, and the log shows that mode."""
    lab = make_lab(LabSpec(enis=2))
    with hold_queue(lab, 1, xdp_hold, "harp", "native"):
        with Job(lab, plugin_file, mode="bidir", words=FEW, env=XDP) as job:
            job.finish()
            assert [job.driver_mode(0), job.driver_mode(1)] == [GENERIC, NATIVE]
            assert "generic copy: an XDP program is attached to the interface in native mode" in job.log(1)
            assert_bypassed(job)
        assert attached_program(lab, 1) == "native harp_filter_3"
