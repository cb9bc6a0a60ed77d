# SPDX-License-Identifier: Apache-2.0
"""Interfaces that are absent when a job starts: left out with one line, and used once they work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets, eni_name, fabric_name
from tests.lab.job import EXIT_PLUGIN, UNTIL_FINISHED, Job, poll_until, until_all_moving

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
StartJob = Callable[..., Job]
Change = Callable[[Lab, int, int], object]

CAP_MBPS = 200.0
LEFT_OUT = re.compile(r"^INFO .*NET/HARP: .*; continuing without it until it works$", re.MULTILINE)


def _take_out(lab: Lab, host: int, eni: int) -> None:
    """Take an ENI out of its host, which then does not have it."""
    away = f"away{host}"
    words = ("link", "set", eni_name(eni), "name", away, "netns", fabric_name(lab.prefix))
    run_command(ip_inside(lab.hosts[host], *words))


def _put_in(lab: Lab, host: int, eni: int) -> None:
    """Put it in again, as a host does that creates it."""
    words = ("link", "set", f"away{host}", "name", eni_name(eni), "netns", lab.hosts[host])
    run_command(ip_inside(fabric_name(lab.prefix), *words))
    run_command(ip_inside(lab.hosts[host], "link", "set", eni_name(eni), "up"))
    lab.add_address(host, eni)  # its routes need it


ABSENT: dict[str, tuple[Change, Change]] = {
    "down": (Lab.link_down, Lab.link_up),
    "no carrier": (Lab.unplug, Lab.plug),
    "no address": (Lab.remove_address, Lab.add_address),
    "gone": (_take_out, _put_in),
}


def _until_without_carrier(lab: Lab, host: int, eni: int) -> None:
    """Wait until the kernel says so: a link's state follows its carrier with a delay."""
    show = ip_inside(lab.hosts[host], "-oneline", "link", "show", eni_name(eni))
    poll_until("no carrier", lambda: "LOWER_UP" not in run_command(show) and "state UP" not in run_command(show))


@pytest.fixture
def start(plugin_file: Path, tmp_path: Path) -> StartJob:
    """Provide a function that makes a job over all ENIs of a lab, by conf files."""

    def make(lab: Lab, names_addresses: bool = True, **words: object) -> Job:
        own = []
        for host in range(len(lab.hosts)):
            folder = tmp_path / f"host{host}"
            folder.mkdir()
            for eni in range(lab.spec.eni_count(host)):
                text = f"[eni]\ninterface = {eni_name(eni)}\n"
                if names_addresses:
                    text += f"address = {lab.address(host, eni)}\n"
                (folder / f"ztcp{eni}.conf").write_text(text)
            own.append({"HARP_CONF_DIR": str(folder)})
        env = {**own[0], **words.pop("env", {})}  # type: ignore[dict-item]
        words.setdefault("words", UNTIL_FINISHED)
        meeting = tmp_path / "meeting"
        return Job(lab, plugin_file, sizes="256K", env=env, rank_env=own, meeting=meeting, **words)  # type: ignore[arg-type]

    return make


def _assert_shown(lab: Lab, job: Job, host: int, eni: int) -> None:
    """The statistics of the other host have the address that it learned."""
    addresses = {str(row["address"]).rpartition(":")[0] for row in job.tables(1 - host)["path"]}
    assert lab.address(host, eni) in addresses
    assert "0.0.0.0" not in addresses  # noqa: S104 - an address that is unknown


def _assert_joins(
    lab: Lab, job: Job, how: str, host: int, eni: int, check: Callable[[], None] = lambda: None
) -> None:
    """The job moves data without the ENI, and over all of them once it works."""
    without = frozenset({eni_name(eni)})
    until_all_moving(job, 1, without=without)
    left_out = LEFT_OUT.findall(job.log(host))
    assert len(left_out) == 1, left_out
    assert eni_name(eni) in left_out[0]
    ABSENT[how][1](lab, host, eni)
    works = f"{eni_name(eni)}: this interface works again"
    poll_until(works, lambda: works in job.log(host))
    until_all_moving(job, 1)
    check()
    job.finish()


@pytest.mark.parametrize(
    ("how", "host", "eni", "carrier"),
    [
        ("down", 0, 1, "auto"),
        ("no carrier", 1, 1, "udp"),
        ("no address", 1, 0, "auto"),
        ("gone", 0, 1, "udp"),
        ("gone", 1, 1, "tcp"),
        ("gone", 1, 0, "auto"),
    ],
)
def test_one_joins_later(make_lab: MakeLab, start: StartJob, how: str, host: int, eni: int, carrier: str) -> None:
    """The sender's, the listener's, and the listener's first, over which processes would have met."""
    lab = make_lab(LabSpec(enis=2, subnets=Subnets.ROUTED, cap_mbps=CAP_MBPS))
    ABSENT[how][0](lab, host, eni)
    if how == "no carrier":
        _until_without_carrier(lab, host, eni)
    with start(lab, env={"HARP_DRIVER": carrier}) as job:
        _assert_joins(lab, job, how, host, eni)


@pytest.mark.parametrize(
    ("how", "host", "eni", "carrier"),
    [
        ("no address", 0, 1, "auto"),
        ("gone", 1, 0, "auto"),
        ("gone", 0, 0, "udp"),
        ("no address", 1, 1, "tcp"),
    ],
)
def test_an_address_that_nobody_knew(
    make_lab: MakeLab, start: StartJob, how: str, host: int, eni: int, carrier: str
) -> None:
    """The peer learns it while the job runs."""
    lab = make_lab(LabSpec(enis=2, subnets=Subnets.ROUTED, cap_mbps=CAP_MBPS))
    ABSENT[how][0](lab, host, eni)
    with start(lab, names_addresses=False, env={"HARP_DRIVER": carrier}) as job:
        _assert_joins(lab, job, how, host, eni, lambda: _assert_shown(lab, job, host, eni))


def test_addresses_that_neither_side_knew(make_lab: MakeLab, start: StartJob) -> None:
    """The same interface of both hosts: its pair of paths works once both have said theirs."""
    lab = make_lab(LabSpec(enis=2, subnets=Subnets.ROUTED, cap_mbps=CAP_MBPS))
    _take_out(lab, 0, 1)
    _take_out(lab, 1, 1)
    with start(lab, names_addresses=False, mode="bidir") as job:
        until_all_moving(job, 1, without=frozenset({"eni1"}))
        _put_in(lab, 0, 1)
        _put_in(lab, 1, 1)
        for rank in range(2):
            until_all_moving(job, rank)
        job.finish()


def test_different_ones_on_each_side(make_lab: MakeLab, start: StartJob) -> None:
    """What works here and there are no partners; a standby path joins them until the others come."""
    lab = make_lab(LabSpec(enis=2, switch=True, subnets=Subnets.ONE, cap_mbps=CAP_MBPS))
    lab.link_down(0, 0)
    _take_out(lab, 1, 1)
    with start(lab, mode="bidir") as job:
        until_all_moving(job, 1, without=frozenset({"eni1"}))
        lab.link_up(0, 0)
        _put_in(lab, 1, 1)
        for rank in range(2):
            until_all_moving(job, rank)
        job.finish()


@pytest.mark.parametrize(
    ("how", "names", "said"),
    [
        ("gone", "=eni0,eni1", "does not exist"),
        ("down", "eni0,eno7,eni1", "begins with 'eno7'"),
    ],
)
def test_by_variable(
    make_lab: MakeLab, plugin_file: Path, tmp_path: Path, how: str, names: str, said: str
) -> None:
    """A name in full that does not exist yet; a list for unlike hosts, where one of them has a link later."""
    lab = make_lab(LabSpec(enis=2, subnets=Subnets.ROUTED, cap_mbps=CAP_MBPS))
    ABSENT[how][0](lab, 1, 1)
    env, meeting = {"HARP_IFNAME": names}, tmp_path / "meeting"
    with Job(lab, plugin_file, sizes="256K", words=UNTIL_FINISHED, env=env, meeting=meeting) as job:
        _assert_joins(lab, job, how, 1, 1)
        assert said in job.log(1)


def test_none_works(make_lab: MakeLab, start: StartJob) -> None:
    """The one WARN has the first one's fault."""
    lab = make_lab(LabSpec(enis=2))
    for eni in range(2):
        lab.link_down(1, eni)
    with start(lab) as job:
        poll_until("it ends", lambda: job.ranks[1].poll() is not None)
        assert job.ranks[1].returncode == EXIT_PLUGIN
        assert len(job.warns(1)) == 1
        assert "interface 'eni0' is down" in job.warns(1)[0]
