# SPDX-License-Identifier: Apache-2.0
"""NCCL over HARP beside NCCL over its own sockets: the benchmark as users call it; four interfaces.

Times are printed and written, never judged.
"""

from __future__ import annotations

import pytest

from harplab.bench.nccl_measure import NcclJob, NcclPlace, NcclSide, alternate_sides, fold_runs
from harplab.bench.nccl_report import nccl_table
from harplab.bench.table import plain_text
from harplab.lab.spec import LabSpec
from tests.nccl import wheels
from tests.nccl.box import measure_beside_sockets, run_harpctl
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

ROUNDS = 5
STRIPED_SIZES = (64 << 10, 1 << 20, 16 << 20)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    "words",
    [
        ("--op", "allreduce"),
        ("--op", "alltoall", "--ranks", "4"),
        ("--op", "sendrecv", "--loopback"),
        ("--op", "allgather", "--env", "NCCL_ALGO=Ring", "--env", "NCCL_PROTO=LL"),
        ("--op", "reducescatter", "--env", "HARP_DRIVER=udp", "--type", "half"),
        ("--op", "broadcast", "--nccl-lib", "2.27.7"),
        ("--op", "reduce", "--against", "socket-best", "--redop", "max"),
    ],
    ids=" ".join,
)
def test_benchmark(words: tuple[str, ...]) -> None:
    measuring = ("--sizes", "64,4K,1M", "--time", "0.05", "--runs", "2")
    document = measure_beside_sockets("bench", "nccl", *words, *measuring)
    for side in document["sides"]:
        assert [row["bytes"] for row in side["rows"]] == [64, 4096, 1 << 20]
        assert {row["wrong"] for row in side["rows"]} == {0}
        assert all(0 < row["time_min_us"] <= row["time_us"] <= row["time_max_us"] for row in side["rows"])
    assert all(0 < ratio["least"] <= ratio["greatest"] for ratio in document["ratios"])


def test_net_that_is_not_used() -> None:
    """A plugin that NCCL can't use is reported, not measured as the sockets that NCCL takes instead."""
    words = ("--sizes", "64", "--runs", "1", "--time", "0.05", "--env", "HARP_IFNAME=none-such")
    done = run_harpctl("bench", "nccl", "--loopback", *words)
    assert done.returncode == 1, done.stdout
    assert "NCCL over HARP failed" in done.stderr
    assert "none-such" in done.stderr


@pytest.mark.parametrize("cap_mbps", [(1000, 1000, 1000, 1000), (1000, 1000, 1000, 250)], ids=str)
def test_four_interfaces(
    make_box: MakeBox,
    harp: dict[str, str],
    cap_mbps: tuple[float, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One device over all, a device for each, and NCCL's sockets, which take all interfaces as well."""
    spec = LabSpec(enis=4, cap_mbps=cap_mbps)
    box = make_box(spec)
    eni = {**harp, "HARP_IFNAME": "eni"}
    sides = [
        NcclSide("HARP striped", {**eni, "HARP_DEVICES": "striped"}, "HARP"),
        NcclSide("HARP enis", {**eni, "HARP_DEVICES": "enis"}, "HARP"),
        NcclSide("Socket", {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}, "Socket"),
    ]
    job = NcclJob(sizes_bytes=STRIPED_SIZES, iterations=10)
    place = NcclPlace(box.program, box.library, box.hosts, env={"NCCL_SOCKET_IFNAME": "eni"})
    taken = alternate_sides(place, sides, job, ROUNDS, lambda _text: None)
    measured = fold_runs(sides, taken, STRIPED_SIZES)
    with capsys.disabled():
        print(f"\nNCCL {wheels.NEWEST}, allreduce, {spec.describe()}, {ROUNDS} alternating runs")
        print(plain_text(nccl_table(measured)))
    assert {row.wrong for rows in measured.rows for row in rows} == {0}
