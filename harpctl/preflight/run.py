# SPDX-License-Identifier: Apache-2.0
"""One preflight from start to report; each step leaves out the hosts that failed an earlier one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from harpctl import lab
from harpctl.console import Progress
from harpctl.doctor.path_probe import ProbeResult
from harpctl.errors import HarpError
from harpctl.fleet import Remote
from harpctl.preflight import diagnosis
from harpctl.preflight.model import (
    Comparison,
    HostState,
    Outcome,
    ProbeRequest,
    Problem,
    Rate,
    RateRequest,
    Report,
    Struct,
)
from harpctl.preflight.rates import choose_pair, run_rounds
from harpctl.preflight.rounds import Pair
from harpctl.preflight.sessions import Agents, Deadline
from harpctl.preflight.verdict import decide

PROBES_S = 30.0  # how long the probes may take: silence takes about 10 s
START_S = 1.0  # of one harp-perf, over ssh
RUNS = 3  # of each size and side of the comparison
SOCKET, NONE = "socket", "none"


class PreflightOptions(Struct, frozen=True, kw_only=True):
    """The options of one preflight."""

    port: int
    time_s: float
    against: str
    nccl: str  # a library on the hosts; "" where they look for one themselves
    sizes: tuple[int, ...]
    within_s: float

    @property
    def other(self) -> str:
        """Return what HARP is compared with, for a person."""
        return "NCCL's Socket" if self.against == SOCKET else self.against


def run_preflight(
    hosts: Sequence[str], remote: Remote, options: PreflightOptions, progress: Progress
) -> Report:
    """Run a preflight. Changes nothing on the hosts."""
    begin, deadline = time.monotonic(), Deadline(options.within_s)
    words = ["preflight", "--agent", f"--port={options.port}", f"--within={options.within_s:g}"]
    with Agents(hosts, remote, words, deadline) as agents:
        with progress.working(f"Asking {len(hosts)} hosts and probing between them"):
            states = agents.states
            problems = diagnosis.host_problems(states)
            planned = diagnosis.plan_probes(states)
            requests = {
                host: ProbeRequest(port=options.port, probes=probes)
                for host, probes in planned.items()
                if probes
            }
            answers = agents.ask(requests, tuple[ProbeResult, ...], min(PROBES_S, deadline.left()))
            probed = {
                host: [replace(probe, result=one) for probe, one in zip(planned[host], its, strict=False)]
                for host, its in answers.items()
            }
            problems += diagnosis.probe_problems(states, probed)
        problems = diagnosis.unanswered(agents.failures) + problems
        fit = _without(states, problems)
        with progress.working(f"Measuring {len(fit)} hosts with each other"):
            rates, late = _rates(agents, fit, options, deadline)
            problems += [*rates.problems, *late]
        fit = _without(fit, problems)
        pair = choose_pair(rates.rates, list(fit))
        with progress.working(f"Comparing with {options.other}"):
            compared, why_not = _compare(pair, states, options, deadline)
    problems = diagnosis.merge_notes(problems)
    unfit = diagnosis.unfit(problems)
    return Report(
        ok=not any(one.level == "fail" for one in problems),
        verdict=decide(unfit, compared, options.other, why_not),
        problems=tuple(problems),
        hosts=states,
        rounds=rates.rounds,
        rates=rates.rates,
        pair=pair if pair and compared else (),
        compared=tuple(compared),
        seconds=round(time.monotonic() - begin, 1),
    )


class _Rates(Struct, frozen=True, kw_only=True):
    """The results of the rounds."""

    rounds: int = 0
    rates: tuple[Rate, ...] = ()
    problems: tuple[Problem, ...] = ()


def _without(states: Mapping[str, HostState], problems: Sequence[Problem]) -> dict[str, HostState]:
    unfit = diagnosis.unfit(problems)
    return {host: state for host, state in states.items() if host not in unfit}


def _rates(
    agents: Agents, fit: Mapping[str, HostState], options: PreflightOptions, deadline: Deadline
) -> tuple[_Rates, list[Problem]]:
    """Measure in rounds; what time did not allow is a problem."""
    if len(fit) < 2:
        return _Rates(), []

    def ask(requests: Mapping[str, RateRequest], seconds: float) -> dict[str, tuple[Outcome, ...]]:
        return agents.ask(requests, tuple[Outcome, ...], seconds)

    planned, done, rates, faults = run_rounds(fit, ask, options.time_s, deadline)
    late = []
    if done < planned:
        cause = f"Time ran out: {done} of {planned} rounds were measured in {options.within_s:g} s."
        late = [Problem(check="time", level="fail", hosts=(), cause=cause, repair=("--within SECONDS",))]
    problems = diagnosis.attribute_faults(faults, list(fit)) + diagnosis.rate_problems(rates)
    return _Rates(rounds=done, rates=tuple(rates), problems=tuple(problems)), late


def _compare(
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
        return (
            [],
            f"{missing[0]} has no NCCL 2.30.3 or newer where they are looked for: --nccl-lib PATH names it.",
        )
    runs = 2 + len(options.sizes) * 2 * (RUNS + 1)
    if deadline.left() < runs * (options.time_s + START_S):
        return [], f"it takes {runs * (options.time_s + START_S):.0f} s more; allow them with --within."
    other = None if options.against == SOCKET else Path(options.against)
    try:
        compare_pair = lab.part("bench.pair", "preflight --against").compare_pair
        return compare_pair(pair, states, other, options.sizes, options.time_s, RUNS, deadline), ""
    except HarpError as error:
        return [], f"{error.message} {' '.join(error.hint.split())}".strip()
