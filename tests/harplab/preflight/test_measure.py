# SPDX-License-Identifier: Apache-2.0
"""A preflight measures in rounds, the rates of a pair, and what HARP gains."""

from __future__ import annotations

import io
import json
import shlex
import signal
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from harpctl.preflight import agent
from harpctl.preflight.model import Outcome, Problem, Rate, RateRequest
from harpctl.preflight.sessions import Deadline
from harpctl.records import decode_json
from harplab.preflight.rates import rate_problems, run_rounds
from harplab.preflight.rounds import plan_rounds
from harplab.preflight.worth import judge_worth
from tests.harpctl.preflight.build import make_eni, make_row, make_state

HOSTS = [f"gpu{number}" for number in range(6)]


def failed_checks(problems: Sequence[Problem]) -> list[tuple[str, ...]]:
    return [(one.check, *one.hosts) for one in problems if one.level == "fail"]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 64])
def test_each_pair_meets_once_and_no_host_waits(count: int) -> None:
    hosts = [f"gpu{number}" for number in range(count)]
    planned = plan_rounds(hosts)
    assert len(planned) == count - 1 + count % 2
    assert all(len(pairs) == count // 2 for pairs in planned)
    assert all(len({host for pair in pairs for host in pair}) == 2 * len(pairs) for pairs in planned)
    met = sorted(tuple(sorted(pair)) for pairs in planned for pair in pairs)
    assert met == sorted(tuple(sorted(pair)) for pair in combinations(hosts, 2))


CONNECTIONS = [{"from": n % 2, "to": 1 - n % 2, "bytes": 10**9} for n in range(4)]
REPORT = json.dumps({"results": [{"window": {"connections": CONNECTIONS}}]})


def test_the_rates_of_a_pair_are_those_of_rank_0s_report() -> None:
    states = {"a": make_state(enis=(make_eni(), make_eni(name="eth2"))), "b": make_state()}
    asked: list[dict[str, RateRequest]] = []

    def ask(requests: Mapping[str, RateRequest], _seconds: float) -> dict[str, tuple[Outcome, ...]]:
        asked.append(dict(requests))
        return {"a": (Outcome(report=REPORT),), "b": (Outcome(),)}

    planned, done, found, faults = run_rounds(states, ask, 1.0, Deadline(60))
    assert (planned, done, faults) == (1, 1, [])
    assert [(rate.source, rate.target, rate.eni, rate.gbps) for rate in found] == [
        ("a", "b", "eth1", 16.0),
        ("b", "a", "eth1", 16.0),
    ]
    (requests,) = asked
    assert [requests[host].rank for host in "ab"] == [0, 1]
    assert requests["a"].meetings == requests["b"].meetings
    assert len(requests["a"].meetings) == 1


def test_an_agents_report_arrives_as_harp_perf_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "harp-perf"
    perf.write_text(f"#!/bin/sh\necho {shlex.quote(REPORT)}\n")
    perf.chmod(0o755)
    for name in ("HARP_DEVICES", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")  # this undoes what the agent sets
    monkeypatch.setattr(signal, "alarm", lambda _seconds: 0)
    monkeypatch.setattr(agent, "describe_host", lambda: make_state(perf=str(perf), enis=()))
    request = RateRequest(rank=0, meetings=("127.0.0.1:1",), time_s=0.1, limit_s=30)
    answers = io.BytesIO()
    agent.serve_agent(0, 60, io.BytesIO(msgspec.json.encode(request) + b"\n"), answers)
    _state, answer = answers.getvalue().splitlines()
    assert decode_json(answer, list[Outcome], "Its answer") == [Outcome(report=REPORT)]


@pytest.mark.parametrize(
    ("outcomes", "cause"),
    [
        ({"a": (Outcome(report=REPORT),)}, "rank 1: its agent did not answer"),
        (
            {"a": (Outcome(error="exit code 1 no way"),), "b": (Outcome(error="exit code 2"),)},
            "rank 0: exit code 1 no way; rank 1: exit code 2",
        ),
        ({"a": (Outcome(report="{}"),), "b": (Outcome(),)}, "harp-perf's report is not understood"),
    ],
)
def test_a_pair_that_can_not_be_measured_is_a_fault(outcomes: dict[str, tuple[Outcome, ...]], cause: str) -> None:
    states = {"a": make_state(), "b": make_state()}
    _planned, _done, found, faults = run_rounds(states, lambda *_: outcomes, 1.0, Deadline(60))
    assert found == []
    assert [(one.check, one.source, one.target) for one in faults] == [("rate", "a", "b")]
    assert faults[0].cause.startswith(f"HARP does not work: {cause}")


def rates_of(slow: dict[str, float], hosts: Sequence[str]) -> list[Rate]:
    """Return the rates of all pairs: a host sends and receives at most what it has."""
    return [
        Rate(source=a, target=b, eni="eth1", lane=0, gbps=min(slow.get(f"{a}>", 10), slow.get(f">{b}", 10)))
        for a in hosts
        for b in hosts
        if a != b
    ]


@pytest.mark.parametrize("count", [3, 4, 6])
@pytest.mark.parametrize("way", ["gpu2>", ">gpu2"])
def test_a_slow_eni_is_named_whichever_way_it_is_slow(count: int, way: str) -> None:
    found = rate_problems(rates_of({way: 4.0}, HOSTS[:count]))
    assert failed_checks(found) == [("rate", "gpu2")]
    assert f"eth1 reaches 4 Gbit/s {'out' if way.endswith('>') else 'in'}; the others reach 10." in found[0].cause


def test_rates_that_scatter_are_no_fault() -> None:
    assert rate_problems(rates_of({"gpu2>": 6.0, ">gpu1": 7.0}, HOSTS)) == []
    assert rate_problems(rates_of({"gpu0>": 1.0}, HOSTS[:2])) == [], "of two, which one?"


ROWS = [make_row(8, 0.9), make_row(65536, 1.0), make_row(1 << 19, 1.4), make_row(1 << 20, 2.0)]


def test_what_it_is_worth() -> None:
    found = judge_worth(ROWS, "Socket")
    assert (found.use, found.gain, found.sizes) == (True, (1.4, 2.0), (1 << 19, 1 << 20))
    assert found.text == (
        "HARP has 1.40x to 2.00x the rate of Socket with messages of 512K and 1M. It is slower with messages of 8."
    )
    found = judge_worth(ROWS[:2], "Socket")
    assert (found.use, found.gain) == (False, None)
    assert found.text == "HARP is not faster than Socket here: 1.00x at best."
