# SPDX-License-Identifier: Apache-2.0
"""A replayed training step: it waits for its buckets and its compute time; the command, as users call it."""

from __future__ import annotations

import pytest

from tests.nccl.box import measure_beside_sockets
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

STEPS = ("--iters=2", "--warmup=1", "--check")


def test_a_step_lasts_as_long_as_it_computes(make_box: MakeBox, harp: dict[str, str]) -> None:
    """All buckets are one row, whose time is a step's."""
    run = make_box(2).run("--step=0:64K,100:1M,100:260", "--compute=400", *STEPS, environment=harp)
    assert run.code == 0, run.describe()
    (row,) = run.sizes
    assert (row.bytes, row.wrong, row.iterations) == ((64 << 10) + (1 << 20) + 260, 0, 2)
    assert row.time_us >= 400e3


def test_a_step_waits_for_its_last_bucket(make_box: MakeBox, harp: dict[str, str]) -> None:
    run = make_box(2).run("--step=0:64K,300:64K", *STEPS, environment=harp)
    assert run.code == 0, run.describe()
    (row,) = run.sizes
    assert row.time_us >= 300e3


@pytest.mark.usefixtures("program")
def test_command() -> None:
    """The last 4 of 5 MiB are ready when the compute time ends, and take 168 ms at 200 Mbit/s."""
    words = ("1M,4M", "--compute", "100", "--cap", "200", "--gpus", "1", "--scale", "2")
    amount = ("--steps", "1", "--warmup", "0", "--runs", "1")
    document = measure_beside_sockets("lab", "step", *words, *amount)
    assert {side["wrong"] for side in document["sides"]} == {0}
    assert all(side["exposed_ms"] > 150 for side in document["sides"])
