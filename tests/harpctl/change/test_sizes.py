# SPDX-License-Identifier: Apache-2.0
"""Sizes of interfaces: set, shown, set back; what somebody else set stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from harpctl.change.apply import apply_plan
from harpctl.change.diff import render_diff
from harpctl.change.rollback import RollbackResult, roll_back
from harpctl.change.steps import Group, Plan, SetSizes, WriteFile, drop_held_steps
from harpctl.console import NoProgress
from harpctl.errors import HarpError
from harpctl.host.host import Host
from harpctl.host.runner import NoRunner
from tests.harpctl.links import FRESH, FakeLinks

STEP = SetSizes(interface="eth1", sizes={"gso_max_size": 131072, "gso_ipv4_max_size": 131072})
PLAN = Plan(groups=(Group(name="BIG TCP", steps=(STEP,)),))
BOOT_ID = "proc/sys/kernel/random/boot_id"


@pytest.fixture
def links() -> FakeLinks:
    return FakeLinks(eth1={**FRESH, "gso_ipv4_max_size": 40000})


@pytest.fixture
def host(tmp_path: Path, links: FakeLinks) -> Host:
    (tmp_path / "etc").mkdir()
    (tmp_path / BOOT_ID).parent.mkdir(parents=True)
    (tmp_path / BOOT_ID).write_text("first\n")
    return Host(tmp_path, NoRunner(), links)


def set_up(host: Host) -> None:
    assert apply_plan(PLAN, host, what="setup", progress=NoProgress())


def undo_all(host: Host, *, force: bool = False) -> RollbackResult:
    return roll_back(host, progress=NoProgress(), force=force)


def test_set_once_and_set_back(host: Host, links: FakeLinks) -> None:
    before = links.sizes("eth1")
    assert render_diff(PLAN, host) == "# BIG TCP\n= gso_max_size=131072 gso_ipv4_max_size=131072 of eth1\n"
    set_up(host)
    assert links.sizes("eth1") == {**FRESH, **STEP.sizes}
    assert drop_held_steps(PLAN, host).is_empty
    assert not undo_all(host).kept
    assert links.sizes("eth1") == before


def test_what_a_boot_forgot_is_not_set_back(host: Host, links: FakeLinks) -> None:
    set_up(host)
    (host.root / BOOT_ID).write_text("second\n")
    links.interfaces["eth1"] = dict(FRESH, gso_ipv4_max_size=40000)
    assert not undo_all(host).kept
    set_up(host)
    del links.interfaces["eth1"]
    report = undo_all(host)
    assert not report.kept
    assert "eth1 isn't there: its sizes are not set back." in report.notes


def test_what_the_boot_unit_set_again_is_set_back(host: Host, links: FakeLinks) -> None:
    set_up(host)
    (host.root / BOOT_ID).write_text("second\n")
    assert not undo_all(host).kept
    assert links.sizes("eth1")["gso_ipv4_max_size"] == 40000


def test_what_somebody_set_since_stays(host: Host, links: FakeLinks) -> None:
    set_up(host)
    links.set_sizes("eth1", {"gso_ipv4_max_size": 200000})
    (kept,) = undo_all(host).kept
    assert kept.reason == "somebody set sizes of eth1 since: gso_ipv4_max_size=200000"
    assert links.sizes("eth1")["gso_max_size"] == 131072
    assert not undo_all(host, force=True).kept
    assert links.sizes("eth1")["gso_ipv4_max_size"] == 40000


def test_a_size_that_the_kernel_refuses_undoes_the_transaction(host: Host, links: FakeLinks) -> None:
    before = links.sizes("eth1")
    steps = (
        WriteFile(path="/etc/new", data=b"1"),
        STEP,
        SetSizes(interface="eth1", sizes={"gso_max_size": 1 << 20}),
    )
    with pytest.raises(HarpError, match="Invalid argument"):
        apply_plan(Plan(groups=(Group(name="all", steps=steps),)), host, what="setup", progress=NoProgress())
    assert links.sizes("eth1") == before
    assert not host.exists("/etc/new")
