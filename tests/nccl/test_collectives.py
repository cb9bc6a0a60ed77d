# SPDX-License-Identifier: Apache-2.0
"""The newest NCCL moves checked data over HARP: each operation, size and protocol, two and four ranks."""

from __future__ import annotations

import pytest

from harplab.bench.nccl_run import NcclRun
from harplab.lab.spec import LabSpec, Offload
from tests.nccl import box
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv", "alltoall")
LEAST_BYTES, MOST_BYTES = 8, 64 << 20
P2P_LL_MOST_BYTES = 64 << 20  # else NCCL sends point to point with LL only what is small


def ring_variables(protocol: str) -> dict[str, str]:
    """Return the variables that have NCCL use the ring with a protocol."""
    return {"NCCL_ALGO": "Ring", "NCCL_PROTO": protocol}


def check_run(run: NcclRun, sizes: list[int]) -> None:
    """Every size was there, no element was wrong, and the data went over HARP both ways."""
    description = run.describe()
    assert run.code == 0, description
    assert [row.bytes for row in run.sizes] == sizes, description
    assert {row.wrong for row in run.sizes} == {0}, description
    assert "Using network HARP" in run.log, description
    assert "[send] via NET/HARP/" in run.log, description  # NCCL 2.25 makes a device 1 of device 0 alone
    assert "[receive] via NET/HARP/" in run.log, description
    assert "via NET/Socket" not in run.log, description
    assert not [line for line in run.log.splitlines() if "WARN NET/HARP" in line], description


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_sizes(make_box: MakeBox, harp: dict[str, str], ranks: int, operation: str, protocol: str) -> None:
    least = LEAST_BYTES * ranks if operation in ("allgather", "reducescatter", "alltoall") else LEAST_BYTES
    threshold = P2P_LL_MOST_BYTES if protocol == "LL" else 0
    run = make_box(ranks).run(
        *(f"--op={operation}", "--check", "--iters=2", "--warmup=0"),
        *(f"--min={least}", f"--max={MOST_BYTES}"),
        environment={**harp, **ring_variables(protocol), "NCCL_P2P_LL_THRESHOLD": str(threshold)},
    )
    check_run(run, box.list_sizes(least, MOST_BYTES, 2))


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("operation", ["allreduce", "alltoall", "sendrecv"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_large_messages_over_tcp(
    make_box: MakeBox, harp: dict[str, str], ranks: int, operation: str, protocol: str
) -> None:
    least, threshold = LEAST_BYTES * ranks, P2P_LL_MOST_BYTES if protocol == "LL" else 0
    run = make_box(ranks).run(
        *(f"--op={operation}", "--check", "--iters=2", "--warmup=0"),
        *(f"--min={least}", f"--max={MOST_BYTES}"),
        environment={
            **harp,
            **ring_variables(protocol),
            "HARP_DRIVER": "udp+tcp",
            "NCCL_P2P_LL_THRESHOLD": str(threshold),
        },
    )
    check_run(run, box.list_sizes(least, MOST_BYTES, 2))
    assert "TCP connections for data are accepted on port" in run.log


@pytest.mark.parametrize("operation", ["allreduce", "sendrecv"])
def test_odd_sizes(make_box: MakeBox, harp: dict[str, str], operation: str) -> None:
    run = make_box(2).run(
        *(f"--op={operation}", "--type=uint8", "--check", "--iters=2", "--warmup=0"),
        *("--min=1", f"--max={16 << 20}", "--factor=7"),
        environment=harp,
    )
    check_run(run, box.list_sizes(1, 16 << 20, 7))


@pytest.mark.parametrize("operation", ["allreduce", "alltoall"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_tree_and_default_protocol(make_box: MakeBox, harp: dict[str, str], ranks: int, operation: str) -> None:
    """NCCL chooses per size in a job that sets nothing, and has connections for the tree as well."""
    least = LEAST_BYTES * ranks
    run = make_box(ranks).run(
        *(f"--op={operation}", "--check", "--iters=4", f"--min={least}", f"--max={4 << 20}", "--factor=4"),
        environment=harp,
    )
    check_run(run, box.list_sizes(least, 4 << 20, 4))


def test_several_communicators(make_box: MakeBox, harp: dict[str, str]) -> None:
    run = make_box(2).run(
        *("--op=allreduce", "--comms=4", "--check", "--iters=4", f"--max={4 << 20}", "--factor=8"),
        environment=harp,
    )
    check_run(run, box.list_sizes(8, 4 << 20, 8))


@pytest.mark.parametrize("mode", ["inline", "thread"])
def test_each_way_to_run_an_engine(make_box: MakeBox, harp: dict[str, str], mode: str) -> None:
    run = make_box(2).run(
        *("--op=alltoall", "--check", "--iters=4", "--min=16", f"--max={16 << 20}", "--factor=8"),
        environment={**harp, "HARP_ENGINE": mode, "HARP_PATHS": "4"},
    )
    check_run(run, box.list_sizes(16, 16 << 20, 8))


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize(
    "spec",
    [LabSpec(offload=Offload.OFF, loss_share=0.01), LabSpec(mtu_bytes=9000)],
    ids=["loss", "jumbo"],
)
def test_other_networks(make_box: MakeBox, harp: dict[str, str], spec: LabSpec, protocol: str) -> None:
    """What is lost and comes later must not show in the lines that NCCL watches while they land."""
    run = make_box(spec).run(
        *("--op=allreduce", "--check", "--rounds=4", "--iters=2"),
        *("--warmup=0", f"--max={2 << 20}", "--factor=4"),
        environment={**harp, **ring_variables(protocol)},
    )
    check_run(run, box.list_sizes(8, 2 << 20, 4))
