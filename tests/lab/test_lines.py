# SPDX-License-Identifier: Apache-2.0
"""A GPU that reads LL and LL128 lines while they land sees no wrong flag (tests/lab/ll_reader.c)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import ENI, drop_packets
from tests.lab.lines import assert_clean, watch_lines

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
LOSS = "meta l4proto udp numgen random mod 1000 < 10"


@pytest.mark.parametrize(
    ("mtu_bytes", "offload", "engine", "layout"),  # each two of them in all combinations
    [
        (1500, Offload.OFF, "inline", "ll"),
        (1500, Offload.OFF, "thread", "ll128"),
        (9000, Offload.STOCK, "inline", "ll128"),
        (9000, Offload.STOCK, "thread", "ll"),
    ],
)
def test_lines_under_loss(
    make_lab: MakeLab,
    plugin_file: Path,
    ll_reader: Path,
    mtu_bytes: int,
    offload: Offload,
    engine: str,
    layout: str,
) -> None:
    lab = make_lab(LabSpec(mtu_bytes=mtu_bytes, offload=offload))
    drop_packets(lab, 0, LOSS)
    assert_clean(watch_lines(lab, ll_reader, plugin_file, layout, 300, ENI, engine))


@pytest.mark.parametrize("layout", ["ll", "ll128"])
def test_lines_under_everything(make_lab: MakeLab, plugin_file: Path, ll_reader: Path, layout: str) -> None:
    lab = make_lab(LabSpec(switch=True, offload=Offload.OFF))
    faults = lab.faults(1).drop(0.01).duplicate(0.05).reorder(0.05).corrupt(0.002)
    assert_clean(watch_lines(lab, ll_reader, plugin_file, layout, 300, ENI, "inline"))
    for name in ("dropped", "doubled", "reordered", "corrupted"):
        assert faults.total(name) > 0
