# SPDX-License-Identifier: Apache-2.0
"""Many processes move checked messages while ranks are killed and stopped, and interfaces fail or drop.

The whole suite (--many) has 16 hosts of 4 ranks and takes 20 minutes, or --minutes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.plan import LabSpec
from harpctl.testbed.lab.spec import Subnets
from tests.many.fleet import FAULTS, Fleet, Summary

pytestmark = [pytest.mark.lab]
MakeLab = Callable[[LabSpec], Lab]
SEED = 32
GROWTH_MAX_KIB = 8 << 10


def _check(summary: Summary) -> None:
    text = summary.line()
    assert not summary.unexpected, "\n".join([text, *summary.unexpected])
    assert summary.messages, text
    assert summary.grown.files == 0, text
    assert summary.grown.threads == 0, text
    assert summary.grown.memory_kib <= GROWTH_MAX_KIB, text


def _lab(hosts: int) -> LabSpec:
    return LabSpec(hosts=hosts, enis=2, subnets=Subnets.ONE)


def test_few(make_lab: MakeLab, rank_program: Path, plugin_file: Path, tmp_path: Path) -> None:
    """Eight ranks, for some seconds."""
    with Fleet(make_lab(_lab(4)), rank_program, plugin_file, tmp_path, ranks_per_host=2, seed=SEED) as fleet:
        fleet.run(8.0, fault_mean_s=0.7, compare_s=3.0, tell=print)
    _check(fleet.summary)


@pytest.mark.timeout(0)
def test_many(
    make_lab: MakeLab,
    rank_program: Path,
    plugin_file: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Sixty-four ranks, for minutes."""
    if not request.config.getoption("--many"):
        pytest.skip("asked for with --many")

    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", end="", flush=True)

    seconds = 60.0 * request.config.getoption("--minutes")
    with Fleet(make_lab(_lab(16)), rank_program, plugin_file, tmp_path, ranks_per_host=4, seed=SEED) as fleet:
        fleet.run(seconds, fault_mean_s=4.0, compare_s=60.0, tell=tell)
    tell(f"{fleet.summary.line()}\n")
    _check(fleet.summary)
    assert set(fleet.summary.faults) == set(FAULTS)
    assert fleet.summary.expected > 0
