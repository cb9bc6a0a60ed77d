# SPDX-License-Identifier: Apache-2.0
"""harp-simulate's times are those of the lab, within 15 %: python -m tests.nccl.beside_model has more rows.

Timed, so only with --nccl --beside-socket, on a machine that does nothing else.
"""

from __future__ import annotations

import pytest

from harpctl.build_info import built_file
from harplab.simulate.run import HARP, PROGRAM, TCP, Cluster, simulate
from tests.nccl.beside_model import CASES, Case, compare, texts

RUNS = 3


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_simulator_takes_each_case(case: Case) -> None:
    settings = (*case.settings(30), "limit_s=0.001")
    done = simulate(built_file(PROGRAM, "harplab"), Cluster(case.collective, case.hosts, case.transport, settings))
    assert done.connections
    assert not done.is_finished


@pytest.mark.nccl
@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "transport"),
    [("ring", TCP), ("ring", HARP), ("tree", HARP), ("alltoall", HARP), ("incast", TCP)],
)
def test_the_model_is_right(collective: str, transport: str, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--beside-socket"):
        pytest.skip("asked for with --beside-socket")
    (case,) = (
        one
        for one in CASES
        if (one.collective, one.transport, one.hosts, one.interfaces) == (collective, transport, 4, 1)
    )
    one = compare(case, RUNS)
    assert one.is_within, texts(one)
