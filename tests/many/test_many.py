# SPDX-License-Identifier: Apache-2.0
"""Many processes move checked messages while ranks are killed and stopped, and interfaces fail or drop.

The whole suite (--many) has 16 hosts of 4 ranks and takes 20 minutes, or --minutes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec, Subnets
from tests.many.fleet import FAULTS, Fleet, Summary

pytestmark = [pytest.mark.lab]
MakeLab = Callable[[LabSpec], Lab]
SEED = 32
GROWTH_MAX_KIB = 8 << 10
PATIENCE_S = 5.0  # the wait for a hang on purpose


def _check_summary(summary: Summary) -> None:
    text = summary.line()
    assert not summary.unexpected, "\n".join([text, *summary.unexpected])
    assert summary.messages, text
    assert summary.grown.files == 0, text
    assert summary.grown.threads == 0, text
    assert summary.grown.memory_kib <= GROWTH_MAX_KIB, text


FEW_LOSS_S = (0.2, 2.0)  # the job ends when its last fault has


def _lab_of_hosts(hosts: int) -> LabSpec:
    return LabSpec(hosts=hosts, enis=2, subnets=Subnets.ONE)


def test_few(make_lab: MakeLab, rank_program: Path, plugin_file: Path, tmp_path: Path) -> None:
    """Eight ranks, for some seconds."""
    with Fleet(
        make_lab(_lab_of_hosts(4)), rank_program, plugin_file, tmp_path, ranks_per_host=2, seed=SEED
    ) as fleet:
        fleet.loss_s = FEW_LOSS_S
        fleet.run(8.0, fault_mean_s=0.7, compare_s=3.0, tell=print)
    _check_summary(fleet.summary)


@pytest.mark.parametrize(
    ("defect", "faults", "finding"),
    [
        ("byte", {"loss": 1}, r"ended with 1\b.*WRONG: message"),
        ("file", {"loss": 1}, r"files \d+ \(\+[1-9]"),
        ("memory", {"loss": 1}, r"KiB \d+ \(\+\d{4,}"),
        ("wake", {"loss": 1}, "HANG: no answer to `run"),
        ("silence", {"kill": 1}, "HANG: no answer to `(run|open)"),
    ],
    ids=["byte", "file", "memory", "wake", "silence"],
)
def test_defects_are_found(
    make_lab: MakeLab,
    rank_program: Path,
    defect_plugin: Path,
    plugin_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    defect: str,
    faults: dict[str, int],
    finding: str,
) -> None:
    """The checks of a job find a plugin that errs."""
    monkeypatch.setenv("DEFECT", defect)
    monkeypatch.setenv("DEFECT_PLUGIN", str(plugin_file))
    fleet = Fleet(make_lab(_lab_of_hosts(2)), rank_program, defect_plugin, tmp_path, ranks_per_host=1, seed=SEED)
    fleet.faults, fleet.hang_s, fleet.loss_s = faults, PATIENCE_S, FEW_LOSS_S
    with pytest.raises(AssertionError, match=f"(?s){finding}"), fleet:  # noqa: PT012
        fleet.run(3.0, fault_mean_s=0.5, compare_s=1.0, tell=print)
        _check_summary(fleet.summary)


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
    with Fleet(
        make_lab(_lab_of_hosts(16)), rank_program, plugin_file, tmp_path, ranks_per_host=4, seed=SEED
    ) as fleet:
        fleet.run(seconds, fault_mean_s=4.0, compare_s=60.0, tell=tell)
    tell(f"{fleet.summary.line()}\n")
    _check_summary(fleet.summary)
    assert set(fleet.summary.faults) == set(FAULTS)
    assert fleet.summary.expected > 0
