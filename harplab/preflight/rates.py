# SPDX-License-Identifier: Apache-2.0
"""Rates between hosts: their agents run harp-perf with each other, all pairs in rounds, ENI by ENI at once.

Each host runs the harp-perf and the plugin that it has itself. The ranks meet at the first one's ENI.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from harpctl.errors import HarpError
from harpctl.ip import is_ipv6
from harpctl.preflight.diagnosis import Fault
from harpctl.preflight.model import HostState, Outcome, Problem, Rate, RateRequest
from harpctl.preflight.sessions import Deadline
from harpctl.records import decode_json
from harplab.preflight.rounds import Pair, plan_rounds

SLOW = 0.5  # the share of what the others reach
START_S = 15.0  # how long a run may take beside its measured time
NO_ANSWER = Outcome(error="its agent did not answer")
Outcomes = dict[str, tuple[Outcome, ...]]
Ask = Callable[
    [Mapping[str, RateRequest], float], Outcomes
]  # asks hosts' agents for rates; answers within so many seconds


class _Connection(msgspec.Struct, frozen=True):
    from_rank: int = msgspec.field(name="from")
    bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Window(msgspec.Struct, frozen=True):
    connections: list[_Connection]


class _Result(msgspec.Struct, frozen=True):
    window: _Window


class _Report(msgspec.Struct, frozen=True):
    """The used fields of harp-perf's JSON."""

    results: list[_Result]


def run_rounds(
    states: Mapping[str, HostState], ask: Ask, time_s: float, deadline: Deadline
) -> tuple[int, int, list[Rate], list[Fault]]:
    """Measure all pairs; return the rounds there are and were, rates, and what failed."""
    planned = plan_rounds(list(states))
    rates: list[Rate] = []
    faults: list[Fault] = []
    for number, pairs in enumerate(planned):
        if deadline.left() < time_s + START_S / 3:
            return len(planned), number, rates, faults
        limit_s = min(time_s * 4 + START_S, deadline.left())
        outcomes = ask(
            {host: request for pair in pairs for host, request in _make_requests(states, pair, time_s, limit_s)},
            deadline.left(),
        )
        for pair in pairs:
            for lane in range(_count_lanes(states, pair)):
                try:
                    rates += _rates_of_lane(states, pair, lane, outcomes, time_s)
                except HarpError as error:
                    cause = f"HARP does not work: {error.message.removesuffix('.')}."
                    faults.append(Fault(check="rate", source=pair[0], target=pair[1], cause=cause))
    return len(planned), len(planned), rates, faults


def _count_lanes(states: Mapping[str, HostState], pair: Pair) -> int:
    """Return how many ENIs of one host have one of the same number on the other."""
    return min(len(states[host].enis) for host in pair)


def _make_requests(
    states: Mapping[str, HostState], pair: Pair, time_s: float, limit_s: float
) -> Iterator[tuple[str, RateRequest]]:
    meetings = tuple(rendezvous(states[pair[0]]) for _lane in range(_count_lanes(states, pair)))
    for rank, host in enumerate(pair):
        yield host, RateRequest(rank=rank, meetings=meetings, time_s=time_s, limit_s=limit_s)


def rendezvous(state: HostState) -> str:
    """Return ADDRESS:PORT where ranks can meet at a host's first ENI."""
    address, (low, high) = state.enis[0].address, state.ephemeral
    port = low + secrets.randbelow(high - low + 1)
    return f"[{address}]:{port}" if is_ipv6(address) else f"{address}:{port}"


def _rates_of_lane(
    states: Mapping[str, HostState], pair: Pair, lane: int, outcomes: Outcomes, time_s: float
) -> list[Rate]:
    """Return the rates of both ways between two ENIs. Raises HarpError where a rank failed."""
    by_rank = [next(iter(outcomes.get(host, ())[lane : lane + 1]), NO_ANSWER) for host in pair]
    failed = [f"rank {rank}: {outcome.error}" for rank, outcome in enumerate(by_rank) if outcome.error]
    if failed:
        raise HarpError("; ".join(failed))
    results = decode_json(by_rank[0].report, _Report, "harp-perf's report").results
    connections = [one for result in results for one in result.window.connections]
    return [
        Rate(
            source=host,
            target=pair[1 - rank],
            eni=states[host].enis[lane].name,
            lane=lane,
            gbps=sum(one.bytes for one in connections if one.from_rank == rank) * 8 / time_s / 1e9,
        )
        for rank, host in enumerate(pair)
    ]


def rate_problems(rates: Iterable[Rate]) -> list[Problem]:
    """Return a problem for each ENI that reaches less than half of the others' rate, out or in."""
    found = []
    by_lane: dict[int, list[Rate]] = {}
    for rate in rates:
        by_lane.setdefault(rate.lane, []).append(rate)
    for ones in by_lane.values():
        out, into = _by_host(ones, "source"), _by_host(ones, "target")
        if len(out) < 3:
            continue  # nobody knows which one of two hosts is slow
        names = {one.source: one.eni for one in ones}
        usual = statistics.median(max(values) for values in (*out.values(), *into.values()))
        for host, name in names.items():
            slow = [
                f"{statistics.median(values):.3g} Gbit/s {direction}"
                for direction, values in (("out", out[host]), ("in", into.get(host, [])))
                if values and max(values) < SLOW * usual
            ]
            if slow:
                cause = f"{name} reaches {' and '.join(slow)}; the others reach {usual:.3g}."
                repair = (f"harpctl doctor  # on {host}",)
                found.append(Problem(check="rate", level="fail", hosts=(host,), cause=cause, repair=repair))
    return found


def _by_host(rates: Iterable[Rate], end: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for rate in rates:
        found.setdefault(getattr(rate, end), []).append(rate.gbps)
    return found


def choose_pair(rates: Sequence[Rate], fit: Sequence[str]) -> Pair | None:
    """Return the pair of fit hosts whose rate is in the middle; None without one."""
    sums: dict[Pair, float] = {}
    for rate in rates:
        pair = (rate.source, rate.target) if rate.source < rate.target else (rate.target, rate.source)
        if set(pair) <= set(fit):
            sums[pair] = sums.get(pair, 0.0) + rate.gbps
    ordered = sorted(sums, key=lambda pair: sums[pair])
    return ordered[len(ordered) // 2] if ordered else None
