# SPDX-License-Identifier: Apache-2.0
"""A lab on this machine: what it builds is there, does what its spec requests, and is gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.errors import HarpError
from harplab.lab.commands import Command, ip_inside
from harplab.lab.lab import (
    BACKLOG_FILE,
    CONGESTION_FILE,
    RPS_BACKLOG,
    Lab,
    namespaces_there,
    require_proc,
    run_command,
)
from harplab.lab.spec import LabSpec, Offload

pytestmark = pytest.mark.lab

WAIT_S = 30
WITH_PERF = """
import pathlib, sys
from harpctl.cli import main
from harplab.bench import options
perf = sys.argv.pop(1)
options.built_file = lambda _name: pathlib.Path(perf)
main()
"""
BLAST = """
import socket, sys
peer, count = sys.argv[1], int(sys.argv[2])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(count):
    out.sendto(b"x", (peer, 9))
"""


def run_on_host(lab: Lab, host: int, *argv: str) -> str:
    return run_command(Command(tuple(lab.command(host, argv))))


def namespaces() -> set[str]:
    return set(namespaces_there())


def own_namespaces() -> set[str]:
    return {name for name in namespaces() if name.startswith(f"harp{os.getpid()}-")}


def received_packets(lab: Lab, host: int, eni: str) -> int:
    shown = run_command(ip_inside(lab.hosts[host], "-json", "-statistics", "link", "show", "dev", eni))
    return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])


def exchange_byte(lab: Lab, client: int, server: int, eni: int) -> None:
    """Move a byte over TCP between two hosts."""
    code = (
        "import socket, sys; s = socket.create_server((sys.argv[1], 7)); print('up', flush=True);"
        "c, _ = s.accept(); c.sendall(c.recv(1))"
    )
    address = lab.address(server, eni)
    with subprocess.Popen(
        lab.command(server, [sys.executable, "-c", code, address]), stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        talk = "import socket, sys; s = socket.create_connection((sys.argv[1], 7), 10);"
        talk += "s.sendall(b'!'); assert s.recv(1) == b'!'"
        run_on_host(lab, client, sys.executable, "-c", talk, address)
        assert child.wait(WAIT_S) == 0


def test_two_hosts_talk_over_every_eni_and_leave_nothing() -> None:
    before, congestion = own_namespaces(), CONGESTION_FILE.read_text()
    with Lab(LabSpec(enis=2, mtu_bytes=9000)) as lab:
        assert set(lab.hosts) <= namespaces()
        for eni in (0, 1):
            exchange_byte(lab, 0, 1, eni)
            assert run_on_host(lab, 0, "cat", f"/sys/class/net/eni{eni}/mtu").strip() == "9000"
        assert lab.notes or run_on_host(lab, 1, "cat", str(CONGESTION_FILE)).strip() == "cubic"
    assert own_namespaces() == before
    assert CONGESTION_FILE.read_text() == congestion


def test_arriving_packets_are_steered_and_the_backlog_is_put_back() -> None:
    before = BACKLOG_FILE.read_text()
    with Lab(LabSpec(rps_cores=2)) as lab:
        for host in (0, 1):
            mask = run_on_host(lab, host, "cat", "/sys/class/net/eni0/queues/rx-0/rps_cpus")
            assert int(mask, 16) == 1 << host
        assert int(BACKLOG_FILE.read_text()) >= RPS_BACKLOG
        exchange_byte(lab, 0, 1, 0)
    assert BACKLOG_FILE.read_text() == before


def test_four_hosts_talk_through_the_fabric(make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec(hosts=4))
    exchange_byte(lab, 0, 3, 0)
    exchange_byte(lab, 2, 1, 0)


def test_labs_stand_side_by_side(make_lab: Callable[[LabSpec], Lab]) -> None:
    one, two = make_lab(LabSpec()), make_lab(LabSpec())
    assert not set(one.hosts) & set(two.hosts)
    exchange_byte(one, 0, 1, 0)
    exchange_byte(two, 0, 1, 0)


def test_a_link_goes_down_and_comes_back(make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec())
    lab.set_link(0, 0, up=False)
    with pytest.raises(HarpError):
        run_on_host(lab, 0, sys.executable, "-c", BLAST, lab.address(1), "1")
    lab.set_link(0, 0, up=True)
    exchange_byte(lab, 0, 1, 0)


def test_loss_takes_its_share_of_packets(make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec(loss_share=0.25, offload=Offload.OFF))
    run_on_host(lab, 0, sys.executable, "-c", BLAST, lab.address(1), "4000")
    shown = json.loads(run_on_host(lab, 1, "nft", "-j", "list", "ruleset"))
    steps = [step for entry in shown["nftables"] if "rule" in entry for step in entry["rule"]["expr"]]
    (dropped,) = [step["counter"]["packets"] for step in steps if "counter" in step]
    assert received_packets(lab, 1, "eni0") >= 4000
    assert 850 <= dropped <= 1150  # 1000 expected; 5.5 standard deviations either way


def test_no_offload_means_single_packets(make_lab: Callable[[LabSpec], Lab]) -> None:
    """A superframe of 60 segments arrives as 60 packets without offloads, as one with them."""
    send = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.setsockopt(socket.IPPROTO_UDP, 103, 1000); s.sendto(bytes(60000), (sys.argv[1], 9))"
    )
    counts = {}
    for offload in (Offload.STOCK, Offload.OFF):
        lab = make_lab(LabSpec(offload=offload))
        run_on_host(lab, 0, sys.executable, "-c", BLAST, lab.address(1), "1")  # so that ARP is done
        before = received_packets(lab, 1, "eni0")
        run_on_host(lab, 0, sys.executable, "-c", send, lab.address(1))
        counts[offload] = received_packets(lab, 1, "eni0") - before
    assert counts[Offload.OFF] >= 60
    assert counts[Offload.STOCK] < 60


def test_big_tcp_is_on_every_link(make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec(enis=2, switch=True, big_tcp=True))
    for namespace, count in ((lab.hosts[0], 2), (lab.hosts[1], 2), (f"{lab.prefix}fabric", 4)):
        shown = json.loads(run_command(ip_inside(namespace, "-d", "-json", "link", "show", "type", "veth")))
        sizes = [(link["gso_max_size"], link["gro_max_size"]) for link in shown]
        assert sizes == [(131072, 131072)] * count
    exchange_byte(lab, 0, 1, 1)


def test_caps_are_installed(make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec(cap_mbps=200))
    assert "rate 200Mbit" in run_on_host(lab, 1, "tc", "qdisc", "show", "dev", "eni0")
    lab = make_lab(LabSpec(flow_cap_mbps=200))
    run_on_host(lab, 0, sys.executable, "-c", BLAST, lab.address(1), "10")
    classes = run_on_host(lab, 0, "tc", "-s", "class", "show", "dev", "eni0").split("class htb ")
    used = [text.split()[0] for text in classes if "Sent 0 bytes" not in text and "Sent" in text]
    assert used, "no class carried the flow"


def test_a_lab_that_fails_halfway_leaves_nothing() -> None:
    before = own_namespaces()

    def run(command: Command) -> str:
        if "address" in command.argv:
            raise HarpError("the address is taken")
        return run_command(command)

    with pytest.raises(HarpError, match="the address is taken"), Lab(LabSpec(), run):
        pass
    assert own_namespaces() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_the_lab_down(
    number: signal.Signals, fake_perf: Path, fake_plugin: Path, tmp_path: Path
) -> None:
    words = ["bench", "--plugin", str(fake_plugin), "--env", "FAKE_HANG=1"]
    words += ["--env", f"FAKE_LOG={tmp_path / 'log'}"]
    with subprocess.Popen(
        [sys.executable, "-c", WITH_PERF, str(fake_perf), *words], stderr=subprocess.PIPE
    ) as child:
        deadline = time.monotonic() + WAIT_S
        while not (tmp_path / "log").exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        mine = {name for name in namespaces() if name.startswith(f"harp{child.pid}-")}
        assert len(mine) == 2
        child.send_signal(number)
        assert child.wait(WAIT_S) == 130
    assert not mine & namespaces()


def test_a_killed_labs_remains_are_swept_by_the_next() -> None:
    code = (
        "import os, signal; from harplab.lab.lab import Lab, LabSpec\n"
        "with Lab(LabSpec()) as lab:\n"
        "    print(*lab.hosts, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = set(done.stdout.split())
    assert left <= namespaces()
    with Lab(LabSpec()):
        assert not left & namespaces()


def test_a_chroot_without_proc_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="/proc is not mounted here"):
        require_proc(tmp_path / "proc" / "sys" / "net")
