# SPDX-License-Identifier: Apache-2.0
"""A device with an engine for each of its cores: each with connections, queues and statistics of its own."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import DRIVER, ENI, STATISTICS, Job, poll_until
from tests.lab.xdp import GENERIC, XDP, assert_bypassed

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]
MakeLab = Callable[[LabSpec], Lab]
CONNECTIONS = ("--connections", "4")
FEW = (*CONNECTIONS, "--iters", "4", "--warmup", "1")
SIZES = "1,129,4096,16385,524288"
MANY = (*CONNECTIONS, "--iters", "40", "--warmup", "10")
LONG = (*CONNECTIONS, "--time", "600", "--warmup", "1")
REPORT_S = 20.0
WHILE_OUT_BYTES = 128 << 20
ENGINE = r"((?:\+?eni\d)+) engine (\d) \(core (\d+)\)"


def _write_conf(folder: Path, enis: int, *, more: str = "") -> dict[str, str]:
    cores = sorted(os.sched_getaffinity(0))
    folder.mkdir()
    for eni in range(enis):
        text = f"[eni]\ninterface = eni{eni}\n{more}[engine]\nmode = thread\ncores = {cores[0]},{cores[1]}\n"
        (folder / f"ztcp{eni}.conf").write_text(text)
    return {"HARP_CONF_DIR": str(folder)}


def _count_connections(job: Job, rank: int) -> Counter[str]:
    """Count the connections of a rank's engines."""
    return Counter(found[2] for found in re.finditer(rf"NET/HARP: {ENGINE}: connected", job.log(rank)))


def _assert_two_engines(job: Job, name: str) -> None:
    """Both engines of each rank had as many connections, on a core each, and report what they moved."""
    for rank in range(job.count):
        assert _count_connections(job, rank) == {"1": 4, "2": 4}
        engines = {found.groups() for found in re.finditer(ENGINE + ": connected", job.log(rank))}
        assert {engine[0] for engine in engines} == {name}
        assert len({engine[2] for engine in engines}) == 2
        lines = re.findall(ENGINE + ": " + STATISTICS.pattern, job.log(rank))
        assert sorted(words[1] for words in lines) == ["1", "2"]
        assert all(" messages_sent " in words[3] for words in lines)


@pytest.mark.parametrize("enis", [1, 2])
def test_an_engine_for_each_core(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, enis: int) -> None:
    lab = make_lab(LabSpec(enis=2))
    env = _write_conf(tmp_path / "conf", enis)
    meeting = tmp_path / "meeting" if enis > 1 else None
    job_words = {"mode": "bidir", "sizes": SIZES, "words": FEW, "env": env, "meeting": meeting}
    with Job(lab, plugin_file, **job_words) as job:  # type: ignore[arg-type]
        job.finish()
        _assert_two_engines(job, "+".join(f"eni{eni}" for eni in range(enis)))


def test_engines_share_the_queues(make_lab: MakeLab, plugin_file: Path, tmp_path: Path) -> None:
    """Each has two of four; paths enough that the peer finds some that lead there."""
    lab = make_lab(LabSpec(enis=2, queues=4))
    env = {**_write_conf(tmp_path / "conf", 1), **XDP}
    with Job(lab, plugin_file, mode="bidir", words=MANY, env=env) as job:
        job.finish()
        _assert_two_engines(job, ENI)
        for rank in range(2):
            drivers = [line for line in job.log(rank).splitlines() if DRIVER.search(line)]
            got = [found.groups() for line in drivers if (found := DRIVER.search(line))]
            assert sorted(got) == [(GENERIC, "queues 0-1"), (GENERIC, "queues 2-3")]
            assert all(", 16 path(s) from" in line for line in drivers)
        assert_bypassed(job)


def test_fewer_queues_than_cores(make_lab: MakeLab, plugin_file: Path, tmp_path: Path) -> None:
    """A job that requests AF_XDP gets it, with as many engines as there are queues."""
    lab = make_lab(LabSpec(enis=2, queues=4))
    env = {**_write_conf(tmp_path / "conf", 1, more="queues = 1\n"), **XDP}
    with Job(lab, plugin_file, mode="bidir", words=FEW, env=env) as job:
        job.finish()
        for rank in range(2):
            pattern = r"generic copy: other engines of this process have all 1 .*; continuing with 1 engine"
            assert re.search(pattern, job.log(rank))
            assert job.queues(rank) == "queue 0"
            assert _count_connections(job, rank) == {"1": 8}


OUT = re.compile(r"nothing gets through (?:on this|to the) interface")


def test_a_lost_interface_is_reported_once(make_lab: MakeLab, plugin_file: Path, tmp_path: Path) -> None:
    """Though both engines of a process lose it."""
    lab = make_lab(LabSpec(enis=2))
    env = _write_conf(tmp_path / "conf", 2)
    words = {"mode": "bidir", "words": LONG, "sizes": "256K", "env": env, "meeting": tmp_path / "meeting"}
    with Job(lab, plugin_file, **words) as job:  # type: ignore[arg-type]
        for rank in range(2):
            poll_until("connected", lambda rank=rank: sum(_count_connections(job, rank).values()) == 8)  # type: ignore[misc]
        job.until_moving()
        lab.set_link(1, 1, up=False)
        for rank in range(2):
            poll_until("logged", lambda rank=rank: bool(OUT.search(job.log(rank))), REPORT_S)  # type: ignore[misc]
        job.until_moving(WHILE_OUT_BYTES)
        lab.set_link(1, 1, up=True)
        for rank in range(2):
            poll_until("works", lambda rank=rank: "works again" in job.log(rank), REPORT_S)  # type: ignore[misc]
            assert not job.warns(rank)  # the job goes on
            out = OUT.findall(job.log(rank))
            assert out.count("nothing gets through on this interface") <= 1
            back = re.findall(r"works again$", job.log(rank), re.MULTILINE)
            assert 1 <= len(back) <= len(out)  # ours, and at INFO the peer's
