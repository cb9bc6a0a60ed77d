# SPDX-License-Identifier: Apache-2.0
"""NCCL's own life cycle over HARP: made and destroyed often, a rank that dies, an unconfigured host."""

from __future__ import annotations

from pathlib import Path

import pytest

from harplab.bench.nccl_run import WRONG_DATA
from tests.nccl import box, wheels
from tests.nccl.conftest import MakeBox
from tests.nccl.test_collectives import check_run

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

REMOTE_ERROR = "remote process exited or there was a network error"
# After so long without an error harp-nccl aborts as a framework's watchdog would, and reports it. Twice what
# HARP promises for a process that ended, since the operation began before that.
PATIENCE_S = 2
KILL_MS = 1500  # by then the first operation has made its connections


@pytest.mark.parametrize("release", [wheels.NEWEST, wheels.RELEASES[-3], wheels.RELEASES[0]], ids=str)
def test_twenty_cycles(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    """The newest unloads the plugin each time, an older one keeps it and its one init."""
    run = make_box(2, release).run(
        *("--op=allreduce", "--check", "--iters=2", f"--max={1 << 20}", "--factor=32", "--cycles=20"),
        environment=harp,
    )
    check_run(run, 20 * box.list_sizes(8, 1 << 20, 32))
    assert run.cycles == 20, run.describe()


def test_cycles_of_several_communicators(make_box: MakeBox, harp: dict[str, str]) -> None:
    run = make_box(2).run(
        *(
            "--op=sendrecv",
            "--check",
            "--iters=2",
            f"--max={1 << 20}",
            "--factor=32",
            "--cycles=5",
            "--comms=3",
        ),
        environment=harp,
    )
    check_run(run, 5 * box.list_sizes(8, 1 << 20, 32))


@pytest.mark.parametrize("operation", ["allreduce", "sendrecv", "alltoall"])
@pytest.mark.parametrize("killed", [0, 1])
def test_rank_killed(make_box: MakeBox, harp: dict[str, str], killed: int, operation: str) -> None:
    """The survivor gets a remote error that names the peer, in time, and its abort returns."""
    run = make_box(2).run(
        *(f"--op={operation}", f"--max={16 << 20}", f"--kill={killed}:{KILL_MS}", f"--patience={PATIENCE_S}"),
        environment=harp,
        timeout_s=120,
    )
    description = run.describe()
    assert run.code == 0, description
    assert [survivor.rank for survivor in run.survivors] == [1 - killed], description
    survivor = run.survivors[0]
    assert survivor.how == "asynchronous error", description
    assert survivor.error == REMOTE_ERROR, description
    assert survivor.abort == 0, description
    assert "NET/HARP: lost" in survivor.last_error, description
    assert f"10.77.0.{killed + 1}" in survivor.last_error, description
    print(f"{operation}: noticed after {survivor.noticed_s} s, aborted in {survivor.abort_s} s")


def test_rank_killed_of_four(make_box: MakeBox, harp: dict[str, str]) -> None:
    """Those that had nothing to do with it directly learn of it when its neighbours abort."""
    run = make_box(4).run(
        *("--op=allreduce", f"--max={16 << 20}", f"--kill=2:{KILL_MS}", "--patience=10"),
        environment={**harp, "NCCL_ALGO": "Ring"},
        timeout_s=120,
    )
    description = run.describe()
    assert run.code == 0, description
    assert [survivor.rank for survivor in run.survivors] == [0, 1, 3], description
    assert {survivor.how for survivor in run.survivors} == {"asynchronous error"}, description
    assert {survivor.error for survivor in run.survivors} == {REMOTE_ERROR}, description
    assert {survivor.abort for survivor in run.survivors} == {0}, description


def test_host_without_configuration(make_box: MakeBox, harp: dict[str, str], tmp_path: Path) -> None:
    """The job runs all the same, over NCCL's sockets, and each rank logs once why and what to do."""
    environment = {**harp, "HARP_CONF_DIR": str(tmp_path)}
    del environment["HARP_IFNAME"], environment["NCCL_NET"]
    run = make_box(2).run(
        *("--op=allreduce", "--check", "--iters=2", f"--max={4 << 20}", "--factor=8"),
        environment=environment,
        timeout_s=120,
    )
    description = run.describe()
    assert run.code == 0, description
    assert {row.wrong for row in run.sizes} == {0}, description
    assert "[send] via NET/Socket/0" in run.log, description
    assert "via NET/HARP" not in run.log, description
    warnings = [line for line in run.log.splitlines() if "WARN NET/HARP" in line]
    assert len(warnings) == 2, description
    for line in warnings:
        for part in (str(tmp_path), "ztcp*.conf", "HARP_IFNAME", "harpctl setup", "libnccl-net.so"):
            assert part in line, description


def test_host_without_configuration_where_harp_is_demanded(
    make_box: MakeBox, harp: dict[str, str], tmp_path: Path
) -> None:
    """Whoever sets NCCL_NET=HARP wants no sockets: NCCL's own error, with our reason before it."""
    environment = {**harp, "HARP_CONF_DIR": str(tmp_path)}
    del environment["HARP_IFNAME"]
    run = make_box(2).run("--op=allreduce", "--check", environment=environment, timeout_s=120)
    description = run.describe()
    assert run.code not in (0, WRONG_DATA), description
    assert "Failed to initialize any NET plugin" in run.output + run.log, description
    assert "no ztcp*.conf" in run.log, description
