# SPDX-License-Identifier: Apache-2.0
"""Checked transfers of all sizes over loopback and veth, in every shape of traffic, engine and network."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Offload
from harplab.perf.job import parse_report
from tests.lab.job import ALL_SIZES, ENI, Job

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
FEW = ("--iters", "24", "--warmup", "4")


@pytest.mark.parametrize(
    ("mode", "engine"),
    [("stream", "inline"), ("bidir", "thread"), ("ring", "inline"), ("alltoall", "thread")],
)
def test_loopback(plugin_file: Path, mode: str, engine: str) -> None:
    perf = plugin_file.parent / "harp-perf"
    argv = [str(perf), "--plugin", str(plugin_file), "--mode", mode, "--sizes", ALL_SIZES, *FEW]
    argv += ["--nranks", "3" if mode in {"ring", "alltoall"} else "2", "--json", "-"]
    env = {"HARP_IFNAME": "=lo", "HARP_ENGINE": engine, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    results = parse_report(done.stdout).results
    assert [result.wrong for result in results] == [0] * len(ALL_SIZES.split(","))


@pytest.mark.parametrize(
    ("mode", "hosts", "engine", "paths", "mtu_bytes", "offload"),
    [
        ("stream", 2, "inline", 1, 1500, Offload.STOCK),
        ("stream", 2, "thread", 4, 9000, Offload.STOCK),
        ("stream", 2, "inline", 4, 1280, Offload.OFF),
        ("bidir", 2, "inline", 4, 1500, Offload.SEGMENT),
        ("bidir", 2, "thread", 1, 9000, Offload.OFF),
        ("ring", 4, "inline", 1, 9000, Offload.STOCK),
        ("ring", 3, "thread", 4, 1500, Offload.OFF),
        ("alltoall", 4, "inline", 4, 1500, Offload.STOCK),
        ("alltoall", 2, "thread", 1, 1280, Offload.SEGMENT),
    ],
)
def test_veth(
    make_lab: MakeLab,
    plugin_file: Path,
    mode: str,
    hosts: int,
    engine: str,
    paths: int,
    mtu_bytes: int,
    offload: Offload,
    driver: str,
) -> None:
    lab = make_lab(LabSpec(hosts=hosts, enis=2, mtu_bytes=mtu_bytes, offload=offload))
    env = {"HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    with Job(lab, plugin_file, mode=mode, sizes=ALL_SIZES, words=FEW, env=env) as job:
        report = job.finish()
        assert report.mode == mode
        assert len(report.results) == len(ALL_SIZES.split(","))
        assert f"{paths} path(s) of datagrams, " in job.log(0)
        assert f"engine {engine}" in job.log(0)
        assert job.driver_mode(0).startswith(driver)


@pytest.mark.parametrize(("mtu_bytes", "offload"), [(1280, Offload.OFF), (9000, Offload.STOCK)])
def test_ip6(make_lab: MakeLab, plugin_file: Path, mtu_bytes: int, offload: Offload) -> None:
    lab = make_lab(LabSpec(enis=2, mtu_bytes=mtu_bytes, offload=offload))
    for host, name in enumerate(lab.hosts):
        run_command(ip_inside(name, "address", "add", f"fd77::{host + 1}/64", "dev", ENI, "nodad"))
    env = {"NCCL_SOCKET_FAMILY": "AF_INET6", "HARP_PATHS": "2"}
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=FEW, env=env) as job:
        job.finish()
        assert "fd77::" in job.log(0)
