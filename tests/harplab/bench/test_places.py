# SPDX-License-Identifier: Apache-2.0
"""Where ranks run."""

from __future__ import annotations

import pytest

from harplab.bench.places import LabHosts, LoopbackHosts
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec


@pytest.fixture
def no_compiler_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harplab.lab.lab.unprivileged_words", lambda: ["setpriv", "--none"])


def _words(spec: LabSpec, rank: int, cores: tuple[int, ...] = ()) -> list[str]:
    hosts = LabHosts(Lab(spec, prefix="places-"), cores)
    return hosts.command(rank, ["harp-perf"], {"A": "1"})[4:]


def test_ranks_keep_off_the_core_that_receives() -> None:
    steered = LabSpec(rps_cores=2)
    assert _words(steered, 0) == ["taskset", "-c", "1", "env", "A=1", "harp-perf"]
    assert _words(steered, 1) == ["taskset", "-c", "0", "env", "A=1", "harp-perf"]


@pytest.mark.usefixtures("no_compiler_needed")
def test_ranks_lose_their_privileges_inside_their_host() -> None:
    words = _words(LabSpec(rps_cores=2, unprivileged=True), 0)
    assert words == ["setpriv", "--none", "taskset", "-c", "1", "env", "A=1", "harp-perf"]


def test_ranks_run_anywhere_else() -> None:
    assert _words(LabSpec(), 0) == _words(LabSpec(rps_cores=1), 0) == ["env", "A=1", "harp-perf"]


def test_ranks_keep_to_given_cores_in_turn() -> None:
    for rank, core in enumerate(("4", "2", "4")):
        words = ["taskset", "-c", core, "env", "A=1", "harp-perf"]
        assert _words(LabSpec(hosts=3), rank, (4, 2)) == words
        assert LoopbackHosts(3, (4, 2)).command(rank, ["harp-perf"], {"A": "1"}) == words
    assert LoopbackHosts().command(0, ["harp-perf"], {"A": "1"}) == ["env", "A=1", "harp-perf"]
