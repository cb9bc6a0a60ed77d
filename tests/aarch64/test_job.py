# SPDX-License-Identifier: Apache-2.0
"""harp-perf for aarch64 over loopback, with every byte checked; also with a rank on x86-64."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import native
from tests.aarch64.machine import RUN_TIMEOUT_S, Machine, build_targets

pytestmark = [pytest.mark.aarch64, pytest.mark.timeout(native.BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)]

JOB = ("--sizes", "1,1K,64K,1M", "--iters", "20", "--warmup", "2", "--log", "none")
RIGHT = "# wrong: 0 OK"


def perf_command(folder: Path, *options: str | Path) -> list[str]:
    """Return the command of harp-perf, with the plugin beside it."""
    return [str(folder / "harp-perf"), "--plugin", str(folder / "libnccl-net.so"), *map(str, options), *JOB]


@pytest.mark.parametrize("mode", ["pingpong", "bidir"])
@pytest.mark.parametrize("driver", ["udp", "tcp", "udp+tcp"])
def test_two_ranks(arm: Machine, driver: str, mode: str) -> None:
    job = perf_command(build_targets("all"), "--mode", mode, "--nranks", "4" if mode == "bidir" else "2")
    done = arm.run(*job, HARP_IFNAME="=lo", HARP_DRIVER=driver)
    assert done.returncode == 0, done.stdout
    assert RIGHT in done.stdout


@pytest.mark.parametrize("first_is_arm", [True, False])
def test_with_a_rank_on_x86_64(arm: Machine, plugin_file: Path, tmp_path: Path, *, first_is_arm: bool) -> None:
    """Nothing on the wire depends on the machine."""
    folders = [build_targets("all"), plugin_file.parent]
    start: list[tuple[str, ...]] = [arm.cross.start, ()]
    if not first_is_arm:
        folders.reverse()
        start.reverse()
    meet = ("--mode", "bidir", "--nranks", "2", "--rendezvous", tmp_path / "meet")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HARP_", "NCCL_"))}
    ranks = [
        subprocess.Popen(
            [*start[rank], *perf_command(folders[rank], *meet, "--rank", str(rank))],
            env={**clean, "HARP_IFNAME": "=lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=RUN_TIMEOUT_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert RIGHT in outputs[0]
