# SPDX-License-Identifier: Apache-2.0
"""The machine that runs the tests, looked at only; and a network namespace of our own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from harpctl.facts import netlink
from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Facts
from harpctl.facts.xdp import release_of
from harpctl.host.host import Host

SCRIPT = """
set -e
ip link set lo up
ip link add eth7 address 02:00:00:00:00:07 type veth peer name far
ip link add br7 type bridge
ip address add 10.7.0.5/24 dev eth7
ip link property add dev eth7 altname enp7s0 altname a-name-of-more-than-15-bytes
ip link set eth7 up mtu 1400
ip link set far up master br7
ip link set eth7 gso_max_size 40000
for version in 4 6; do echo 0 > /proc/sys/net/ipv$version/conf/all/forwarding; done
echo 1 > /proc/sys/net/ipv6/conf/eth7/forwarding
ip route add default via 10.7.0.1
ip route add default via 10.7.0.2 metric 50
ip route add 10.8.0.0/16 via 10.7.0.9
env --unset=SSH_CONNECTION "$0" -m harpctl facts --json  # as sudo does
true
"""


def test_the_machine_itself() -> None:
    facts = collect_facts(Host())
    assert msgspec.json.decode(msgspec.json.encode(facts), type=Facts) == facts
    assert facts.memory.total == psutil.virtual_memory().total
    assert {cpu.id for cpu in facts.cpus} == set(range(len(facts.cpus)))
    assert len(facts.cpus) == psutil.cpu_count()
    assert facts.system.kernel == os.uname().release
    assert facts.system.is_root == (os.geteuid() == 0)
    names = set(psutil.net_if_addrs())
    assert {eni.name for eni in facts.enis} <= names
    for eni in facts.enis:
        stats = psutil.net_if_stats()[eni.name]
        assert eni.mtu == stats.mtu
        assert eni.index == socket.if_nametoindex(eni.name)


def test_without_netlink_proc_provides_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    live = collect_facts(Host())
    monkeypatch.setattr(netlink, "read_netlink", lambda _only: None)
    facts = collect_facts(Host())
    assert [eni.name for eni in facts.enis] == [eni.name for eni in live.enis]
    assert [eni.is_default_route for eni in facts.enis] == [eni.is_default_route for eni in live.enis]
    assert any("did not answer on netlink" in line for line in facts.unknown)


@pytest.mark.lab
def test_a_network_namespace_that_sysfs_does_not_show(root: Path) -> None:
    outside = {eni.name for eni in collect_facts(Host()).enis}
    environ = {**os.environ, "SSH_CONNECTION": "192.0.2.9 5000 10.7.0.5 22"}
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", SCRIPT, sys.executable],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    enis = {eni["name"]: eni for eni in facts["enis"]}
    assert set(enis) == {"eth7", "far", "br7"}
    eth7 = enis["eth7"]
    assert (eth7["kind"], enis["br7"]["kind"]) == ("veth", "bridge")
    assert eth7["addresses"] == ["10.7.0.5/24"]
    assert sorted(eth7["altnames"]) == ["a-name-of-more-than-15-bytes", "enp7s0"]
    assert (eth7["gateway"], eth7["is_default_route"]) == ("10.7.0.1", True)
    assert (eth7["mac"], eth7["mtu"], eth7["is_up"]) == ("02:00:00:00:00:07", 1400, True)
    assert eth7["carries_ssh"]
    assert (eth7["is_port"], enis["far"]["is_port"]) == (False, True)
    assert (eth7["forwards"], enis["far"]["forwards"]) == (True, False)
    has_ipv4_sizes = release_of(os.uname().release) >= (6, 3)
    assert (eth7["gso_max_size"], eth7["gso_ipv4_max_size"]) == (40000, 40000 if has_ipv4_sizes else None)
    assert not enis["far"]["carries_ssh"]
    assert set(facts["foreign_links"]) == outside
    assert not outside or any("hostNetwork" in line for line in facts["unknown"])
