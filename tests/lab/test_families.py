# SPDX-License-Identifier: Apache-2.0
"""IPv6 and IPv4 in one job: link-local addresses, ENIs of both families in one device, hosts that differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets, eni_name
from tests.lab.job import EXIT_PLUGIN, Job, poll_until

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
StartJob = Callable[..., Job]
WORDS = ("--iters", "100")


@pytest.fixture
def start(plugin_file: Path, tmp_path: Path) -> StartJob:
    """Provide a function that makes a job over all ENIs of a lab."""

    def make(lab: Lab, ifname: str = "eni", **words: object) -> Job:
        own: object = words.pop("env", {})
        env = {"HARP_IFNAME": ifname, "HARP_PEER_TIMEOUT": "2", **own}  # type: ignore[dict-item]
        meeting = tmp_path / "meeting"
        return Job(lab, plugin_file, env=env, meeting=meeting, words=WORDS, sizes="256K", **words)  # type: ignore[arg-type]

    return make


def _only_ipv6(lab: Lab, host: int, eni: int) -> None:
    """Replace the IPv4 address of an ENI, 10.77.<eni>.<host + 1>, by fd77:<eni>::<host + 1>."""
    lab.remove_address(host, eni)
    words = ("address", "add", f"fd77:{eni}::{host + 1}/64", "dev", eni_name(eni), "nodad")
    run_command(ip_inside(lab.hosts[host], *words))


def test_link_local_over_interfaces_of_other_numbers(make_lab: MakeLab, start: StartJob) -> None:
    """What the peer calls its interface is nothing to us."""
    lab = make_lab(LabSpec())
    first, second = lab.hosts
    run_command(ip_inside(second, "link", "add", "other0", "type", "veth", "peer", "name", "other1"))
    for name in ("ll0", "ll1"):
        run_command(ip_inside(first, "link", "add", name, "type", "veth", "peer", "name", name, "netns", second))
        for host in lab.hosts:
            run_command(ip_inside(host, "link", "set", name, "addrgenmode", "none"))
            run_command(ip_inside(host, "link", "set", name, "up"))
            address = f"fe80::{1 + lab.hosts.index(host)}/64"
            run_command(ip_inside(host, "address", "add", address, "dev", name, "nodad"))
    with start(lab, "=ll0,ll1") as job:
        job.finish()
        assert "ll0+ll1: connected" in job.log(0)


def test_both_families_in_one_device(make_lab: MakeLab, start: StartJob) -> None:
    lab = make_lab(LabSpec(enis=2))
    for host in range(2):
        _only_ipv6(lab, host, 1)
    with start(lab) as job:
        job.finish()
        assert "2 path(s)" in job.log(0)


def test_an_interface_without_a_partner_is_reported(make_lab: MakeLab, start: StartJob) -> None:
    """An interface whose family the peer lacks carries nothing, and a line of the log reports it."""
    lab = make_lab(LabSpec(enis=2, subnets=Subnets.ONE, switch=True))
    _only_ipv6(lab, 1, 1)
    with start(lab) as job:
        job.finish()
        assert "eni1 is not used by the connection" in job.log(1)
        assert "eni1 is not used by the connection" not in job.log(0)


def test_families_of_the_first_differ(make_lab: MakeLab, start: StartJob) -> None:
    """Two processes connect over the interfaces whose families agree."""
    lab = make_lab(LabSpec(enis=2))
    _only_ipv6(lab, 1, 0)
    with start(lab) as job:
        job.finish()


def test_addresses_that_are_new(make_lab: MakeLab, start: StartJob) -> None:
    """A new IPv6 address is tentative for a second or two, in which nobody can connect from it."""
    lab = make_lab(LabSpec())
    for host in range(2):
        lab.remove_address(host, 0)
        words = ("address", "add", f"fd78::{host + 1}/64", "dev", eni_name(0))
        run_command(ip_inside(lab.hosts[host], *words))
        shown = run_command(ip_inside(lab.hosts[host], "-6", "address", "show", "tentative"))
        assert "fd78::" in shown
    with start(lab, env={"HARP_PEER_TIMEOUT": "20"}) as job:
        job.finish()


def test_no_family_in_common(make_lab: MakeLab, start: StartJob) -> None:
    lab = make_lab(LabSpec(enis=2))
    for eni in range(2):
        _only_ipv6(lab, 1, eni)
    with start(lab) as job:
        assert EXIT_PLUGIN in job.wait(30)
        poll_until("the reason", lambda: any("configure the same family" in job.log(rank) for rank in range(2)))
