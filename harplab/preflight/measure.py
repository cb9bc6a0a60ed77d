# SPDX-License-Identifier: Apache-2.0
"""The measuring part of a preflight: all pairs in rounds, then one pair of hosts that are fit in detail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from harpctl.console import Progress
from harpctl.errors import HarpError
from harpctl.preflight.diagnosis import attribute_faults, failed_hosts
from harpctl.preflight.model import (
    NONE,
    SOCKET,
    Comparison,
    HostState,
    Measured,
    Outcome,
    PreflightOptions,
    Problem,
    Rate,
    RateRequest,
    Verdict,
)
from harpctl.preflight.sessions import Agents, Deadline
from harplab.preflight.pair import compare_pair
from harplab.preflight.rates import choose_pair, rate_problems, run_rounds
from harplab.preflight.rounds import Pair
from harplab.preflight.worth import judge_worth

START_S = 1.0  # the start of one harp-perf, over ssh
RUNS = 3  # the runs of each size and side of the comparison


def measure_fleet(
    agents: Agents,
    fit: Mapping[str, HostState],
    options: PreflightOptions,
    deadline: Deadline,
    progress: Progress,
) -> Measured:
    """Measure the hosts that are fit, by their agents."""
    with progress.working(f"Measuring {len(fit)} hosts with each other"):
        rounds, rates, problems = _measure_rates(agents, fit, options, deadline)
    left = {host: state for host, state in fit.items() if host not in failed_hosts(problems)}
    pair = choose_pair(rates, list(left))
    with progress.working(f"Comparing with {options.other}"):
        compared, why_not = _compare_pair(pair, left, options, deadline)
    not_compared = Verdict(use=None, text=f"HARP was not compared: {why_not}")
    return Measured(
        worth=judge_worth(compared, options.other) if compared else not_compared,
        problems=tuple(problems),
        rounds=rounds,
        rates=tuple(rates),
        pair=pair if pair and compared else (),
        compared=tuple(compared),
    )


def _measure_rates(
    agents: Agents, fit: Mapping[str, HostState], options: PreflightOptions, deadline: Deadline
) -> tuple[int, list[Rate], list[Problem]]:
    """Return the rounds that were measured, rates and problems; what time did not allow is one."""
    if len(fit) < 2:
        return 0, [], []

    def ask(requests: Mapping[str, RateRequest], seconds: float) -> dict[str, tuple[Outcome, ...]]:
        return agents.ask(requests, tuple[Outcome, ...], seconds)

    planned, done, rates, faults = run_rounds(fit, ask, options.time_s, deadline)
    problems = attribute_faults(faults, list(fit)) + rate_problems(rates)
    if done < planned:
        cause = f"Time ran out: {done} of {planned} rounds were measured in {options.within_s:g} s."
        repair = ("--within SECONDS",)
        problems.append(Problem(check="time", level="fail", hosts=(), cause=cause, repair=repair))
    return done, rates, problems


def _compare_pair(
    pair: Pair | None, states: Mapping[str, HostState], options: PreflightOptions, deadline: Deadline
) -> tuple[list[Comparison], str]:
    """Return the comparison, or why there is none."""
    if options.against == NONE:
        return [], "--against none."
    if pair is None:
        return [], "no two hosts are fit."
    if options.nccl:
        states = {host: replace(state, nccl=options.nccl) for host, state in states.items()}
    if options.against == SOCKET and (missing := [host for host in pair if not states[host].nccl]):
        where = f"{missing[0]} has no NCCL 2.30.3 or newer where they are looked for"
        return [], f"{where}: --nccl-lib PATH names it."
    runs = 2 + len(options.sizes) * 2 * (RUNS + 1)
    if deadline.left() < runs * (options.time_s + START_S):
        return [], f"it takes {runs * (options.time_s + START_S):.0f} s more; allow them with --within."
    other = None if options.against == SOCKET else Path(options.against)
    try:
        return compare_pair(pair, states, other, options.sizes, options.time_s, RUNS, deadline), ""
    except HarpError as error:
        return [], f"{error.message} {' '.join(error.hint.split())}".strip()
