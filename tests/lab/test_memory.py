# SPDX-License-Identifier: Apache-2.0
"""A process with many connections holds a bounded memory, and messages cost none."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import Job, poll_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
LONG = ("--iters", "10000000", "--warmup", "1")
RESIDENT_MAX_KIB = 300 * 1024
GROWTH_MAX_KIB = 64
WINDOWS_MAX = 8
SETTLE_BYTES = 32 << 20
WATCHED_BYTES = 64 << 20  # a thousand messages and more


def _status_kib(pid: int, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_64_connections(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """32 connections each way; the buffers of harp-perf itself are in the figure."""
    lab = make_lab(LabSpec(enis=2))
    words = (*LONG, "--connections", "32")
    env = {"HARP_ENGINE": engine}
    with Job(lab, plugin_file, mode="bidir", sizes="64K", words=words, env=env) as job:
        job.until_moving(SETTLE_BYTES)
        growths_kib = []
        for _ in range(WINDOWS_MAX):
            before = [_status_kib(rank.pid, "VmRSS") for rank in job.ranks]
            job.until_moving(WATCHED_BYTES)
            after = [_status_kib(rank.pid, "VmRSS") for rank in job.ranks]
            growths_kib.append(max(end - start for start, end in zip(before, after, strict=True)))
            if growths_kib[-1] <= GROWTH_MAX_KIB:
                break
        # What is touched late comes to an end; what messages cost does not.
        assert growths_kib[-1] <= GROWTH_MAX_KIB, growths_kib
        for rank in job.ranks:
            assert _status_kib(rank.pid, "VmHWM") < RESIDENT_MAX_KIB


@pytest.mark.parametrize(("sizes", "engine"), [("4K", "inline"), ("1M", "thread")])
def test_nothing_is_allocated_per_message(
    make_lab: MakeLab,
    plugin_file: Path,
    compile_c: Callable[..., Path],
    tmp_path: Path,
    sizes: str,
    engine: str,
) -> None:
    lab = make_lab(LabSpec(enis=2))
    counter = compile_c("count_malloc", "-shared", "-fPIC", "-ldl")
    # Both ranks count into one file, which shows as well whether anybody allocates.
    env = {"LD_PRELOAD": str(counter), "COUNT_MALLOC_FILE": str(tmp_path / "count"), "HARP_ENGINE": engine}

    def calls() -> int:
        (count,) = struct.unpack("=Q", (tmp_path / "count").read_bytes())
        return int(count)

    with Job(lab, plugin_file, mode="bidir", sizes=sizes, words=LONG, env=env) as job:
        job.until_moving(SETTLE_BYTES // 4)
        poll_until("allocations are counted", lambda: calls() > 0)
        before = calls()
        job.until_moving(WATCHED_BYTES)
        assert calls() == before
