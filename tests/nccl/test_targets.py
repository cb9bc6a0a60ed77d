# SPDX-License-Identifier: Apache-2.0
"""Real NCCL over HARP takes no more than a share of the time that it takes over its own sockets.

By default settings, in networks that clouds have. Timed, so only with --nccl --beside-socket, on a machine
that does nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from harplab.bench.nccl_measure import NcclJob, NcclPlace, NcclSide, alternate_sides, fold_runs
from harplab.bench.nccl_report import geometric_mean, nccl_notes, nccl_table
from harplab.bench.table import plain_text
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.nccl import wheels
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

MakeLab = Callable[[LabSpec], Lab]
ROUNDS = 3
SIZES = (1 << 20, 4 << 20, 32 << 20)
TIME_S = 0.5
OPERATIONS = ("allreduce", "alltoall", "sendrecv")


@dataclasses.dataclass(frozen=True)
class Target:
    """A network, and the greatest share of Socket's time, as the geometric mean over the sizes.

    Where harplab/bench/suite.py demands more, this guards what is reached.
    """

    spec: LabSpec
    most: float
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    settle_s: float = 4.0  # until the first experiments have ended; the number of flows takes longer


TARGETS = {
    "4 interfaces of 1 Gbit/s": Target(LabSpec(enis=4, cap_mbps=1000), 1.08),
    "8 interfaces of 500 Mbit/s": Target(LabSpec(enis=8, cap_mbps=500), 1.1),
    "one interface of 2 Gbit/s": Target(LabSpec(cap_mbps=2000), 1.03),
    "0.1 % of loss at 2 Gbit/s": Target(LabSpec(cap_mbps=2000, loss_share=0.001), 0.85),
    "1 % of loss": Target(LabSpec(loss_share=0.01), 0.3),
    "8 flows of 500 Mbit/s": Target(LabSpec(flow_cap_mbps=500), 0.33, {"HARP_PATHS": "8"}, settle_s=10),
}


@pytest.fixture(autouse=True)
def _only_where_requested(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--beside-socket"):
        pytest.skip("asked for with --beside-socket")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", TARGETS)
def test_time_beside_sockets(
    make_box: MakeBox,
    make_lab: MakeLab,
    harp: dict[str, str],
    name: str,
    operation: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = TARGETS[name]
    lab = make_lab(target.spec)
    box = make_box(lab)
    sides = [
        NcclSide("HARP", {**harp, "HARP_IFNAME": "eni", **target.env}, "HARP"),
        NcclSide("Socket", {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}, "Socket"),
    ]
    job = NcclJob(op=operation, sizes_bytes=SIZES, time_s=TIME_S, check=False, settle_s=target.settle_s)
    env = {"NCCL_SOCKET_IFNAME": "eni"}
    place = NcclPlace(box.program, box.library, box.hosts, env=env, packets=lab.packet_counts)
    measured = fold_runs(sides, alternate_sides(place, sides, job, ROUNDS, lambda _text: None), SIZES)
    with capsys.disabled():
        print(f"\n{name}:")
        print(plain_text(nccl_table(measured)))
        place_text = target.spec.describe()
        print(*nccl_notes(place_text, str(wheels.NEWEST), job, ROUNDS, measured), sep="\n")
    ratio = geometric_mean(measured)
    assert ratio <= target.most, f"{name}, {operation}: {ratio:.2f} of Socket's time, not {target.most}"
