# SPDX-License-Identifier: Apache-2.0
"""Networks in which not every interface reaches every other: cables with a subnet for each pair of hosts,
first interfaces that reach nobody or do not answer, hosts with unlike networks.

The jobs' interfaces are made inside a lab's namespaces; its own ENIs are for hosts that have others besides.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec
from tests.conformance import abi
from tests.lab.cables import join_hosts, join_pairs
from tests.lab.job import EXIT_PLUGIN, Job, poll_until
from tests.lab.remote import RemotePeer, transfer_messages
from tests.layer import load_layer

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
StartJob = Callable[..., Job]
WORDS = ("--iters", "60")
SIZES = "8,64K,1M"
CONNECTED = re.compile(r": connected (?:to|from) \S+ \(([0-9a-f.:]+)\)")
STRANGER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as s:
    print(len(s.recv(1)))
"""
MUTE = """
import socket, time
with socket.create_server(("0.0.0.0", 0), backlog=1000) as s:
    print(s.getsockname()[1])
    time.sleep(600)
"""


@pytest.fixture
def start(plugin_file: Path, tmp_path: Path) -> StartJob:
    """Provide a function that makes a job over interfaces of those names, for each rank."""

    def make(lab: Lab, *ifnames: str, timeout_s: int = 10, **words: object) -> Job:
        rank_env = [{"HARP_IFNAME": f"={names}", "HARP_PEER_TIMEOUT": str(timeout_s)} for names in ifnames]
        words.setdefault("words", WORDS)
        words.setdefault("sizes", SIZES)
        meeting = tmp_path / "meeting"
        return Job(lab, plugin_file, rank_env=rank_env, meeting=meeting, **words)  # type: ignore[arg-type]

    return make


def _add_lonely_interface(lab: Lab, host: int, name: str, address: str) -> None:
    """Give a host an interface that reaches nobody: the other end of its cable is in the host, too."""
    inside = lab.hosts[host]
    run_command(ip_inside(inside, "link", "add", name, "type", "veth", "peer", "name", f"{name}x"))
    for end in (name, f"{name}x"):
        run_command(ip_inside(inside, "link", "set", end, "up"))
    run_command(ip_inside(inside, "address", "add", address, "dev", name))
    shown = ip_inside(inside, "-oneline", "link", "show", name)
    poll_until(f"{name} is up", lambda: "state UP" in run_command(shown))


def _addresses_of_peers(job: Job, rank: int) -> set[str]:
    """Return the addresses of the peers that a rank has connected with."""
    return set(CONNECTED.findall(job.log(rank)))


@pytest.mark.parametrize("turned", [False, True])
def test_triangle_of_cables(make_lab: MakeLab, start: StartJob, turned: bool) -> None:
    """Each pair of three hosts has its own cable; each host's list begins with either."""
    lab = make_lab(LabSpec(hosts=3))
    join_pairs(lab, [(0, 1), (1, 2), (0, 2)])
    ifnames = ["to1,to2", "to2,to0", "to0,to1"] if turned else ["to1,to2", "to0,to2", "to0,to1"]
    with start(lab, *ifnames, mode="alltoall") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {"10.78.0.2", "10.78.2.3"}
        assert _addresses_of_peers(job, 1) == {"10.78.0.1", "10.78.1.3"}


def test_ring_of_four_cables(make_lab: MakeLab, start: StartJob) -> None:
    """Neighbours alone reach each other."""
    lab = make_lab(LabSpec(hosts=4))
    join_pairs(lab, [(0, 1), (1, 2), (2, 3), (3, 0)])
    with start(lab, "to1,to3", "to0,to2", "to1,to3", "to2,to0", mode="ring") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {"10.78.0.2", "10.78.3.4"}


@pytest.mark.parametrize(("one", "other"), [("lonely,eni0", "lonely,eni0"), ("lonely,eni0", "eni0,lonely")])
def test_one_interface_reaches_nobody(make_lab: MakeLab, start: StartJob, one: str, other: str) -> None:
    lab = make_lab(LabSpec())
    for host, subnet in enumerate((3, 5)):
        _add_lonely_interface(lab, host, "lonely", f"192.168.{subnet}.12/24")
    with start(lab, one, other, mode="bidir") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {lab.address(1)}


def test_an_address_that_all_hosts_have(make_lab: MakeLab, start: StartJob) -> None:
    """The bridge of containers comes first, and has the same address everywhere."""
    lab = make_lab(LabSpec())
    for host in range(2):
        _add_lonely_interface(lab, host, "docker0", "172.17.0.1/16")
    with start(lab, "docker0,eni0", "docker0,eni0", mode="bidir") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {lab.address(1)}


def test_only_an_address_that_all_hosts_have(make_lab: MakeLab, start: StartJob) -> None:
    """The reason names what is wrong, not a firewall."""
    lab = make_lab(LabSpec())
    for host in range(2):
        _add_lonely_interface(lab, host, "docker0", "172.17.0.1/16")
    with start(lab, "docker0", "docker0", mode="bidir", timeout_s=2) as job:
        assert EXIT_PLUGIN in job.wait()
        assert any("this host has the peer's address itself" in line for line in job.warns(0) + job.warns(1))


def test_first_interface_does_not_answer(make_lab: MakeLab, start: StartJob) -> None:
    """All that is sent over it is lost: the connection comes up over the second all the same."""
    lab = make_lab(LabSpec(enis=2))
    lab.faults(1, 0).blackhole("both")
    with start(lab, "eni0,eni1", "eni0,eni1", mode="bidir") as job:
        assert job.wait() == [0, 0]
        assert _addresses_of_peers(job, 0) == {lab.address(1, 1)}


def test_hosts_of_unlike_networks(make_lab: MakeLab, start: StartJob) -> None:
    """One has many interfaces of both families, the others one each: of IPv4, of IPv6."""
    lab = make_lab(LabSpec(hosts=3))
    join_hosts(lab, 0, 1, ("cab1", "only"), ("10.79.1.1/24", "10.79.1.2/24"))
    join_hosts(lab, 0, 2, ("cab2", "only"), ("fd79::1/64", "fd79::3/64"))
    _add_lonely_interface(lab, 0, "lonely", "192.168.3.1/24")
    with start(lab, "lonely,cab2,cab1", "only", "only", mode="incast") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {"10.79.1.2", "fd79::3"}


def test_many_interfaces_find_the_one_that_works(make_lab: MakeLab, start: StartJob) -> None:
    """Eight on each side, of which the last ones alone share a network."""
    lab = make_lab(LabSpec())
    for host, number in itertools.product(range(2), range(7)):
        _add_lonely_interface(lab, host, f"lone{number}", f"192.168.{host * 10 + number}.1/24")
    names = ",".join([*(f"lone{number}" for number in range(7)), "eni0"])
    with start(lab, names, names, mode="bidir") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {lab.address(1)}


def test_two_interfaces_of_one_subnet_without_rules(make_lab: MakeLab, start: StartJob) -> None:
    """The main table sends by the first one from both addresses; who connects says so once, and by name."""
    lab = make_lab(LabSpec())
    for number in range(2):
        addresses = (f"10.79.0.{1 + 2 * number}/24", f"10.79.0.{2 + 2 * number}/24")
        join_hosts(lab, 0, 1, (f"twin{number}",) * 2, addresses)
    with start(lab, "twin0,twin1", "twin0,twin1") as job:
        job.finish()
        line = "twin1: packets from its address, 10.79.0.3, leave by another interface"
        assert job.log(0).count("leave by another interface") == job.log(0).count(line) == 1


def test_an_alternative_name_is_the_interface(make_lab: MakeLab, start: StartJob) -> None:
    lab = make_lab(LabSpec())
    for host in lab.hosts:
        run_command(ip_inside(host, "link", "property", "add", "dev", "eni0", "altname", "enp7s0np0"))
    with start(lab, "enp7s0np0", "eni0") as job:
        job.finish()
        assert all(": eni0 10." in job.log(rank) for rank in range(2))


def test_an_address_swallows_what_it_is_sent(make_lab: MakeLab, start: StartJob) -> None:
    """What accepts connections at the first address says nothing: the second is tried after 200 ms."""
    lab = make_lab(LabSpec(enis=2))
    first = lab.address(1)
    rules = "table ip swallow {{ chain out {{\ntype nat hook output priority -100;\n{}\n}}\n}}\n"
    argv = lab.command(0, [sys.executable, "-uc", MUTE])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as mute:
        try:
            assert mute.stdout
            port = int(mute.stdout.readline())
            rule = f"ip daddr {first} meta l4proto tcp redirect to :{port}"
            run_command(run_inside(lab.hosts[0], "nft", "-f", "-", stdin=rules.format(rule)))
            with start(lab, "eni0,eni1", "eni0,eni1") as job:
                job.finish()
                assert _addresses_of_peers(job, 0) == {lab.address(1, 1)}
                assert f"what accepts connections at {first} does not answer; trying" in job.log(0)
        finally:
            mute.kill()


def test_an_address_that_is_tentative(make_lab: MakeLab, start: StartJob) -> None:
    """A new IPv6 address cannot be used for some seconds, while the kernel looks for duplicates."""
    lab = make_lab(LabSpec())
    names = ("late", "late")
    join_hosts(lab, 0, 1, names, ("10.79.1.1/24", "10.79.1.2/24"))
    for host, address in enumerate(("fd79::1/64", "fd79::2/64")):
        inside = lab.hosts[host]
        run_command(run_inside(inside, "sysctl", "-qw", "net.ipv6.conf.late.dad_transmits=2"))
        run_command(ip_inside(inside, "address", "del", f"10.79.1.{host + 1}/24", "dev", "late"))
        run_command(ip_inside(inside, "address", "add", address, "dev", "late"))
    shown = run_command(ip_inside(lab.hosts[0], "address", "show", "dev", "late"))
    assert "fd79::1/64 scope global tentative" in shown
    with start(lab, "late", "late", mode="bidir") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {"fd79::2"}


def test_gateway_between_cables(make_lab: MakeLab, start: StartJob) -> None:
    """Hosts 0 and 2 reach each other through host 1, from their second interface to the first."""
    lab = make_lab(LabSpec(hosts=3))
    join_pairs(lab, [(0, 1), (1, 2)])
    _add_lonely_interface(lab, 0, "lonely", "192.168.3.1/24")
    run_command(ip_inside(lab.hosts[0], "route", "add", "10.78.1.0/24", "via", "10.78.0.2"))
    run_command(ip_inside(lab.hosts[2], "route", "add", "10.78.0.0/24", "via", "10.78.1.2"))
    run_command(run_inside(lab.hosts[1], "sysctl", "-qw", "net.ipv4.ip_forward=1"))
    with start(lab, "lonely,to1", "to0,to2", "to1", mode="alltoall") as job:
        job.finish()
        assert _addresses_of_peers(job, 0) == {"10.78.0.2", "10.78.1.3"}


def test_local_ports_are_used_up(make_lab: MakeLab, start: StartJob) -> None:
    """What the kernel may choose from has one port: the reason names the setting."""
    lab = make_lab(LabSpec())
    run_command(run_inside(lab.hosts[0], "sysctl", "-qw", "net.ipv4.ip_local_port_range=50000 50000"))
    with start(lab, "eni0", "eni0", timeout_s=2) as job:
        assert EXIT_PLUGIN in job.wait()
        assert len(job.warns(0)) == 1
        assert "of the range 50000 50000 is free" in job.warns(0)[0]
        assert "net.ipv4.ip_local_port_range" in job.warns(0)[0]


def test_no_port_for_datagrams(make_lab: MakeLab, plugin_file: Path, tmp_path: Path) -> None:
    lab = make_lab(LabSpec())
    for host in range(2):
        run_command(run_inside(lab.hosts[host], "sysctl", "-qw", "net.ipv4.ip_local_port_range=50000 50001"))
    env = {"HARP_PATHS": "4"}
    with Job(lab, plugin_file, env=env, words=WORDS, meeting=tmp_path / "meeting") as job:
        assert EXIT_PLUGIN in job.wait()
        assert "net.ipv4.ip_local_port_range" in job.warns(1)[0]


def test_other_addresses_of_the_host_accept_nobody(make_lab: MakeLab, plugin_file: Path) -> None:
    """The port is open at all addresses; a connection to one that is not the device's ends at once."""
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_IFNAME": "eni"}
    with RemotePeer(lab, 0, plugin_file, env) as receiver, RemotePeer(lab, 1, plugin_file, env) as sender:
        handle = bytes.fromhex(receiver.call("listen"))
        port = load_layer().HarpHandle(handle).port
        receiver.start("accept")
        for _ in range(3):
            argv = lab.command(0, [sys.executable, "-c", STRANGER, "127.0.0.1", str(port)])
            done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
            assert done.stdout == "0\n"
        assert sender.call("connect", handle.hex()) == abi.SUCCESS
        assert receiver.answer() == abi.SUCCESS
        transfer_messages(receiver, sender, 4, 100_000)
        assert not [line for line in receiver.call("close") if line.startswith("WARN")]
