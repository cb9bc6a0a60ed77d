# SPDX-License-Identifier: Apache-2.0
"""`harpctl doctor --peer` between two hosts with a router between them, made of network namespaces.

Cases share nothing and mostly wait, so some of them run at once.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

PORT = 17717
MTU = 4000
WAIT_S = 60
AT_ONCE = 3
HERE, THERE = "10.77.1.1", "10.77.2.1"
HERE6, THERE6 = "fd77:1::1", "fd77:2::1"


def run_program(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=WAIT_S).stdout


class Site:
    """Two hosts, `a` and `b`, and the router `m` between them."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.names = {name: f"harpdoc{os.getpid()}-{number}{name}" for name in "amb"}

    def inside(self, name: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.names[name], *argv]

    def ip(self, name: str, *argv: str) -> None:
        run_program("ip", "-n", self.names[name], *argv)

    def build(self) -> None:
        for name in self.names.values():
            run_program("ip", "netns", "add", name)
        for host, number in (("a", 1), ("b", 2)):
            far = ("peer", "name", f"to_{host}", "netns", self.names["m"])
            self.ip(host, "link", "add", "eth1", "type", "veth", *far)
            for name, device, last in ((host, "eth1", 1), ("m", f"to_{host}", 2)):
                self.ip(name, "link", "set", "dev", device, "mtu", str(MTU), "up")
                self.ip(name, "addr", "add", f"10.77.{number}.{last}/24", "dev", device)
                self.ip(name, "addr", "add", f"fd77:{number}::{last}/64", "dev", device, "nodad")
            self.ip(host, "link", "set", "dev", "lo", "up")
            self.ip(host, "route", "add", "10.77.0.0/16", "via", f"10.77.{number}.2")
            self.ip(host, "-6", "route", "add", "fd77::/16", "via", f"fd77:{number}::2")
        run_program(*self.inside("m", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"))

    def destroy(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=WAIT_S)

    def filter(self, name: str, hook: str, rule: str) -> None:
        run_program(*self.inside(name, "nft", "add table inet doc"))
        chain = f"add chain inet doc {hook} {{ type filter hook {hook} priority 0; }}"
        run_program(*self.inside(name, "nft", chain))
        run_program(*self.inside(name, "nft", f"add rule inet doc {hook} {rule}"))

    def narrow(self, mtu: int) -> None:
        """Make the router's way to `b` narrower than both hosts know."""
        self.ip("m", "link", "set", "dev", "to_b", "mtu", str(mtu))

    @contextmanager
    def serving(self, *before: str) -> Iterator[None]:
        """Run the responder on `b`."""
        argv = [
            *before,
            sys.executable,
            "-m",
            "harpctl",
            "doctor",
            "--serve",
            "--port",
            str(PORT),
            "--within",
            "300",
        ]
        with subprocess.Popen(self.inside("b", *argv), stderr=subprocess.PIPE, text=True) as child:
            try:
                assert child.stderr is not None
                assert "Answering on port" in child.stderr.readline()
                assert THERE in child.stderr.readline()
                yield
            finally:
                child.terminate()

    def doctor(self, peer: str = THERE, **conf: object) -> dict[str, dict[str, Any]]:
        """Run the doctor on `a`; return the peer's findings by their ids."""
        lines = "".join(f"{key} = {value}\n" for key, value in conf.items())
        address = HERE6 if ":" in peer else HERE
        (self.folder / "ztcp0.conf").write_text(
            f"[eni]\ninterface = eth1\naddress = {address}\n[transport]\n{lines}"
        )
        argv = [sys.executable, "-m", "harpctl", "doctor", "--peer", peer, "--port", str(PORT), "--json"]
        done = subprocess.run(
            self.inside("a", *argv),
            env={**os.environ, "HARP_CONF_DIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
        )
        assert done.stdout, done.stderr
        findings = json.loads(done.stdout)["findings"]
        return {one["id"]: one for one in findings if one["id"].startswith(("peer.", "enis.egress"))}


def levels_of(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {id_: one["level"] for id_, one in found.items() if one["level"] != "ok"}


Case = Callable[[Site], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def _with_peer(function: Callable[[Site, str], None], peer: str, site: Site) -> None:
    function(site, peer)


def case_of_both_families(function: Callable[[Site, str], None]) -> None:
    for family, peer in (("v4", THERE), ("v6", THERE6)):
        CASES[f"{function.__name__}_{family}"] = functools.partial(_with_peer, function, peer)


@case_of_both_families
def all_well(site: Site, peer: str) -> None:
    with site.serving():
        found = site.doctor(peer)
    assert levels_of(found) == {}
    assert len(found) == 7


@case_of_both_families
def no_responder(site: Site, peer: str) -> None:
    found = site.doctor(peer)
    assert levels_of(found) == {"peer.both_ways": "warn"}
    assert found["peer.both_ways"]["repair"][0].startswith(f"harpctl doctor --serve --port {PORT}")


@case_of_both_families
def bottleneck(site: Site, peer: str) -> None:
    site.narrow(1500)
    with site.serving():
        found = site.doctor(peer)
    assert levels_of(found) == {"peer.mtu": "fail"}
    assert f"of the MTU {MTU}, a router reports that it is too big; 1500 bytes pass" in found["peer.mtu"]["cause"]
    assert found["peer.mtu"]["repair"][0].startswith("ip link set dev eth1 mtu 1500")


@case
def bottleneck_without_icmp(site: Site) -> None:
    site.narrow(1400)
    site.filter("m", "output", "icmp type destination-unreachable drop")
    with site.serving():
        found = site.doctor()
    assert levels_of(found) == {"peer.mtu": "fail"}
    assert "it is lost; 1400 bytes pass" in found["peer.mtu"]["cause"]


@case
def bottleneck_without_responder(site: Site) -> None:
    site.narrow(1500)
    found = site.doctor()
    assert levels_of(found) == {"peer.mtu": "fail", "peer.both_ways": "warn"}
    assert "1500 bytes pass" in found["peer.mtu"]["cause"]


@case
def udp_dropped(site: Site) -> None:
    site.filter("b", "input", "meta l4proto udp drop")
    with site.serving():
        found = site.doctor()
    assert levels_of(found) == {"peer.udp": "fail"}
    assert "no answer" in found["peer.udp"]["cause"]
    assert f"udp dport {{ {PORT}, 32768-60999 }} ip saddr {HERE} accept" in found["peer.udp"]["repair"][0]


@case
def ports_of_the_conf_dropped(site: Site) -> None:
    site.filter("b", "input", "udp dport 41000-41999 drop")
    with site.serving():
        found = site.doctor(ports="40000-41000")
    assert levels_of(found) == {"peer.ports": "fail"}
    way = f"eth1 ({HERE}) to {THERE}."
    assert found["peer.ports"]["cause"] == f"UDP does not reach 1 of 1001 ports, 41000: {way}"


@case_of_both_families
def a_hole_in_the_range(site: Site, peer: str) -> None:
    """A firewall that refuses connections as the kernel does, and one that drops datagrams, both inside."""
    site.filter("b", "input", "udp dport {40300, 40310-40319} drop")
    site.filter("b", "input", "tcp dport 40500-40599 reject with tcp reset")
    with site.serving():
        found = site.doctor(peer, ports="40000-41000")
    assert levels_of(found) == {"peer.ports": "fail", "peer.tcp": "fail"}
    assert "UDP does not reach 11 of 1001 ports, 40300, 40310-40319: eth1" in found["peer.ports"]["cause"]
    assert "TCP does not reach 100 of 1001 ports, 40500-40599: eth1" in found["peer.tcp"]["cause"]


@case
def a_responder_that_is_not_root(site: Site) -> None:
    site.filter("b", "input", "udp dport 40300 drop")
    with site.serving("setpriv", "--bounding-set=-all", "--inh-caps=-all"):
        found = site.doctor(ports="40000-41000")
    assert levels_of(found) == {"peer.ports": "skip"}
    assert "the responder of 10.77.2.1 does not see all ports" in found["peer.ports"]["cause"]


@case
def tcp_dropped(site: Site) -> None:
    site.filter("b", "input", f"tcp dport != {PORT} drop")
    with site.serving():
        found = site.doctor()
    assert levels_of(found) == {"peer.tcp": "fail"}
    assert "TCP does not reach 28232 of 28232 ports, 32768-60999: eth1" in found["peer.tcp"]["cause"]


@case
def wrong_way_out(site: Site) -> None:
    """A second interface on the subnet takes what the first one's address should send."""
    site.ip("a", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
    site.ip("a", "link", "set", "dev", "other", "up")
    site.ip("a", "link", "set", "dev", "eth0", "up")
    site.ip("a", "addr", "add", "10.77.1.9/24", "dev", "eth0", "metric", "1")
    site.ip("a", "route", "flush", "10.77.1.0/24", "dev", "eth1")
    found = site.doctor()
    assert found["enis.egress"]["level"] == "fail"
    assert f"eth1: from {HERE} to 10.77.1.2 the kernel sends through eth0" in found["enis.egress"]["cause"]
    site.ip("a", "route", "add", "10.77.1.0/24", "dev", "eth1", "table", "7700")
    site.ip("a", "rule", "add", "from", HERE, "lookup", "7700")
    assert site.doctor()["enis.egress"]["level"] == "ok"


# ---- all of them ----


def _run_in_site(run_case: Case, folder: Path, number: int) -> None:
    site = Site(folder, number)
    try:
        site.build()
        run_case(site)
    finally:
        site.destroy()


@pytest.fixture(scope="module")
def under_way(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """Provide every case that is selected, on a site of its own."""
    items = [item for item in request.session.items if item.path == request.path]
    selected = {item.callspec.params["name"] for item in items if isinstance(item, pytest.Function)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(_run_in_site, one, tmp_path_factory.mktemp("site"), number)
            for number, (name, one) in enumerate(CASES.items())
            if name in selected
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_peer(name: str, under_way: dict[str, Future[None]]) -> None:
    under_way[name].result()
