"""Where ranks run."""

from __future__ import annotations

from harpctl.bench.places import LabHosts
from harpctl.lab.lab import Lab
from harpctl.lab.spec import LabSpec


def _words(spec: LabSpec, rank: int) -> list[str]:
    hosts = LabHosts(Lab(spec, prefix="places-"))
    return hosts.command(rank, ["harp-perf"], {"A": "1"})[4:]


def test_ranks_keep_off_the_core_that_receives() -> None:
    steered = LabSpec(rps_cores=2)
    assert _words(steered, 0) == ["taskset", "-c", "1", "env", "A=1", "harp-perf"]
    assert _words(steered, 1) == ["taskset", "-c", "0", "env", "A=1", "harp-perf"]


def test_ranks_run_anywhere_else() -> None:
    assert _words(LabSpec(), 0) == _words(LabSpec(rps_cores=1), 0) == ["env", "A=1", "harp-perf"]
