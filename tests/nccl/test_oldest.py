# SPDX-License-Identifier: Apache-2.0
"""NCCL 2.8.4, which knows neither NCCL_NET nor NCCL_NET_PLUGIN, loads HARP by its name and connects over it.

The tool does not understand the kernels of this release, so communicators are made and no data is moved. The
release looks for the GPU in sysfs, so a file describes the machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harplab.bench.nccl_run import NcclRun
from tests.nccl import wheels
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab]

TOPOLOGY = """\
<system version="1">
  <cpu numaid="-1" affinity="ffffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="bad0:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="0"/>
    </pci>
  </cpu>
</system>
"""
CYCLES = 3


def run_cycles(make_box: MakeBox, folder: Path, environment: dict[str, str]) -> NcclRun:
    """Make communicators of two ranks, connect them, and destroy them."""
    file = folder / "topology.xml"
    file.write_text(TOPOLOGY)
    done = make_box(2, wheels.OLDEST).run(
        *("--op=allreduce", "--iters=0", "--max=8", f"--cycles={CYCLES}"),
        environment={**environment, "NCCL_TOPO_FILE": str(file)},
        timeout_s=120,
    )
    assert done.code == 0, done.describe()
    assert done.cycles == CYCLES, done.describe()
    assert done.log.count("Init COMPLETE") == 2 * CYCLES, done.describe()
    return done


def test_connects(make_box: MakeBox, named_plugin: Path, tmp_path: Path) -> None:
    done = run_cycles(make_box, tmp_path, {"LD_LIBRARY_PATH": str(named_plugin), "HARP_IFNAME": "=eni0"})
    assert "Using network HARP" in done.log, done.describe()
    assert "[send] via NET/HARP/0" in done.log, done.describe()
    assert done.log.count(" connected to ") >= 2 * CYCLES, done.describe()


def test_is_turned_off_by_a_variable(make_box: MakeBox, named_plugin: Path, tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(named_plugin), "HARP_IFNAME": "=eni0", "HARP_DISABLE": "1"}
    done = run_cycles(make_box, tmp_path, environment)
    assert "Using network Socket" in done.log, done.describe()
    lines = [line for line in done.log.splitlines() if "NET/HARP" in line]
    assert len(lines) == 2, done.describe()
    assert all("is disabled by HARP_DISABLE=1" in line for line in lines)


def test_operations_are_refused(make_box: MakeBox, tmp_path: Path) -> None:
    file = tmp_path / "topology.xml"
    file.write_text(TOPOLOGY)
    done = make_box(2, wheels.OLDEST).run(
        "--op=allreduce", environment={"NCCL_TOPO_FILE": str(file)}, timeout_s=120
    )
    assert done.code != 0
    assert "only communicators can be made, with --iters 0" in done.output, done.describe()
