# SPDX-License-Identifier: Apache-2.0
"""ECN end to end: marks that the network sets are counted and reported, and jobs run without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import Job, drop_packets, dropped_packets, statistics_of, treat_packets
from tests.lab.xdp import IP6, add_ip6

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
SIZES = "8,16384,131072"
FEW = ("--iters", "40", "--warmup", "4")
ECT = {"ip": "meta l4proto udp ip ecn ect0", "ip6": "meta l4proto udp ip6 ecn ect0"}
NOT_ECT = "meta l4proto udp ip length > 1000 ip ecn not-ect"  # acknowledgements alone are shorter
UDP = {"HARP_DRIVER": "udp"}


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("family", ["ip", "ip6"])
def test_marks_are_counted_and_reported(make_lab: MakeLab, plugin_file: Path, family: str) -> None:
    """A third of what comes to host 0 is marked: it counts that, and the other learns how much it was."""
    lab = make_lab(LabSpec(enis=2))
    env: dict[str, str] = {}
    if family == "ip6":
        add_ip6(lab)
        env = IP6
    treat_packets(lab, 0, f"{ECT[family]} numgen inc mod 3 < 1", f"{family} ecn set ce")
    with Job(lab, plugin_file, mode="bidir", sizes=SIZES, words=FEW, env=env) as job:
        job.finish()
        assert dropped_packets(lab, 0) > 0
        counted = [statistics_of(job.log(rank)) for rank in range(2)]
    assert counted[0]["ce_packets"] > 0
    assert counted[1]["ce_packets"] == 0
    assert counted[0]["ce_reported_bytes"] == 0
    assert 0 < counted[1]["ce_reported_bytes"] < counted[1]["tx_bytes"]
    assert sum(one["absurd_marks"] for one in counted) == 0


@pytest.mark.usefixtures("driver")
def test_a_network_that_drops_what_is_ecn_capable(make_lab: MakeLab, plugin_file: Path) -> None:
    """After three probes without an answer a path goes on without ECN."""
    lab = make_lab(LabSpec(enis=2))
    for host in range(2):
        drop_packets(lab, host, ECT["ip"])
    with Job(lab, plugin_file, mode="bidir", sizes=SIZES, words=FEW) as job:
        job.finish()
        assert dropped_packets(lab, 0) > 0
        assert dropped_packets(lab, 1) > 0


@pytest.mark.parametrize(("setting", "never"), [("on", NOT_ECT), ("off", ECT["ip"])])
def test_data_is_marked_as_the_setting_says(
    make_lab: MakeLab, plugin_file: Path, setting: str, never: str
) -> None:
    lab = make_lab(LabSpec(enis=2))
    for host in range(2):
        drop_packets(lab, host, never)
    with Job(lab, plugin_file, mode="bidir", sizes=SIZES, words=FEW, env={**UDP, "HARP_ECN": setting}) as job:
        job.finish()
        assert job.statistics()["rx_packets"] > 0
        assert dropped_packets(lab, 0) + dropped_packets(lab, 1) == 0
