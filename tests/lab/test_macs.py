# SPDX-License-Identifier: Apache-2.0
"""Sessions whose packets and records have MACs (HARP_AUTH=mac), over each driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import ALL_SIZES, ENI, Job

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
FEW = ("--iters", "24", "--warmup", "4")
MACS = {"HARP_AUTH": "mac"}


def _assert_sealed(job: Job) -> None:
    """Both ends have MACs, and none was found wrong; all packets were as large as the network takes."""
    counted = job.statistics()
    assert counted["drop_MAC"] == 0
    assert counted["size_changes"] == 0
    for rank in range(2):
        assert "wire version 1 with MACs," in job.log(rank)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("engine", "mtu_bytes", "offload"),
    [("inline", 1500, Offload.STOCK), ("thread", 9000, Offload.STOCK), ("inline", 1280, Offload.OFF)],
)
def test_datagrams(
    make_lab: MakeLab, plugin_file: Path, engine: str, mtu_bytes: int, offload: Offload, driver: str
) -> None:
    lab = make_lab(LabSpec(enis=2, mtu_bytes=mtu_bytes, offload=offload))
    env = {**MACS, "HARP_ENGINE": engine, "HARP_PATHS": "2"}
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=FEW, env=env) as job:
        job.finish()
        assert job.driver_mode(0).startswith(driver)
        _assert_sealed(job)


@pytest.mark.usefixtures("driver")
def test_packets_that_fit_without_a_mac_alone(make_lab: MakeLab, plugin_file: Path) -> None:
    """Over IPv6 11 lines fill an MTU of 1500: with a MAC packets have 10."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=1500))
    for host, name in enumerate(lab.hosts):
        run_command(ip_inside(name, "address", "add", f"fd77::{host + 1}/64", "dev", ENI, "nodad"))
    env = {**MACS, "NCCL_SOCKET_FAMILY": "AF_INET6"}
    with Job(lab, plugin_file, mode="bidir", sizes="64K,1M", words=FEW, env=env) as job:
        job.finish()
        assert "fd77::" in job.log(0)
        _assert_sealed(job)


@pytest.mark.parametrize("carrier", ["udp+tcp", "tcp"])
@pytest.mark.parametrize(("zerocopy", "checksum"), [("on", "on"), ("off", "off")])
def test_records(make_lab: MakeLab, plugin_file: Path, carrier: str, zerocopy: str, checksum: str) -> None:
    """Whatever the checksum's setting is, all payload has a MAC."""
    lab = make_lab(LabSpec(enis=2))
    env = {**MACS, "HARP_DRIVER": carrier, "HARP_ZEROCOPY": zerocopy, "HARP_TCP_CHECKSUM": checksum}
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=FEW, env=env) as job:
        job.finish()
        _assert_sealed(job)
        counted = job.statistics()
        assert counted["tx_records"] > 0
        assert counted["tx_unchecked"] == 0
        assert (counted["tx_by_reference"] > 0) == (zerocopy == "on")
