# SPDX-License-Identifier: Apache-2.0
"""Eight ranks share a host: all together fill all of its interfaces evenly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets, eni_name
from tests.lab.job import Job

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]

RANKS = 8  # a host's ranks
ENIS = 8
UNEVEN_MAX = 0.15
RUN_S = 300.0  # 16 processes on a machine with few cores
CAP_MBPS = 50.0  # so that interfaces are the bottleneck, not this machine
RING = ("ring", "256K", "100")
ALL_TO_ALL = ("alltoall", "64K", "30")


def _sent_by_eni(lab: Lab, host: int) -> list[int]:
    """Read what each ENI of a host has sent."""
    lines = run_command(run_inside(lab.hosts[host], "cat", "/proc/net/dev")).splitlines()[2:]
    counts = {name.strip(): int(figures.split()[8]) for name, _, figures in (x.partition(":") for x in lines)}
    return [counts[eni_name(eni)] for eni in range(ENIS)]


@pytest.mark.parametrize(("mode", "size", "count"), [RING, ALL_TO_ALL])
def test_each_interface_carries_its_part(
    make_lab: MakeLab, plugin_file: Path, tmp_path: Path, mode: str, size: str, count: str
) -> None:
    """Bytes count, which are the same on a slow machine; each hop of the ring is between the hosts."""
    lab = make_lab(LabSpec(enis=ENIS, subnets=Subnets.ONE, cap_mbps=CAP_MBPS))
    own = [{"LOCAL_RANK": str(rank // 2), "LOCAL_WORLD_SIZE": str(RANKS)} for rank in range(2 * RANKS)]
    words = ("--iters", count, "--warmup", "1", "--no-check", "--timeout", str(RUN_S))
    with Job(
        lab,
        plugin_file,
        mode=mode,
        sizes=size,
        words=words,
        env={"HARP_IFNAME": "eni", "HARP_PEER_TIMEOUT": "60"},
        rank_env=own,
        hosts=[rank % 2 for rank in range(2 * RANKS)],
        meeting=tmp_path / "meeting",
    ) as job:
        assert job.wait(RUN_S) == [0] * job.count
    for host in range(2):
        sent = _sent_by_eni(lab, host)
        mean = sum(sent) / ENIS
        assert max(abs(one - mean) for one in sent) <= UNEVEN_MAX * mean, sent
