# SPDX-License-Identifier: Apache-2.0
"""One preflight from its beginning to its report; every step leaves out the hosts that failed before it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from harpctl.console import Progress
from harpctl.errors import HarpError
from harpctl.fleet import Remote
from harpctl.preflight import judge
from harpctl.preflight.model import Asked, Compared, Own, Problem, Rate, Report, Struct
from harpctl.preflight.rates import RUNS, SOCKET, choose_pair, compare_pair, run_rounds
from harpctl.preflight.rounds import Pair
from harpctl.preflight.talk import Limit, Parts
from harpctl.preflight.verdict import decide

PROBES_S = 30.0  # how long the probes may take: silence takes about 10 s
START_S = 1.0  # of one harp-perf, over ssh
NONE = "none"


class Options(Struct, frozen=True, kw_only=True):
    """What the operator asked for."""

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


def fly(hosts: Sequence[str], remote: Remote, options: Options, progress: Progress) -> Report:
    """Do all of it. Changes nothing on the hosts."""
    begin, limit = time.monotonic(), Limit(options.within_s)
    words = ["preflight", "--part", f"--port={options.port}", f"--within={options.within_s:g}"]
    with Parts(hosts, remote, words, limit) as parts:
        with progress.working(f"Asking {len(hosts)} hosts and probing between them"):
            owns = parts.owns
            problems = judge.of_hosts(owns)
            planned = judge.plan_ways(owns)
            asked = {host: Asked(port=options.port, ways=ways) for host, ways in planned.items()}
            problems += judge.of_ways(owns, parts.probe(asked, min(PROBES_S, limit.left())))
        problems = judge.unheard(parts.failures) + problems
        fit = _without(owns, problems)
        with progress.working(f"Measuring {len(fit)} hosts with each other"):
            rates, late = _rates(fit, options, limit)
            problems += [*rates.problems, *late]
        fit = _without(fit, problems)
        pair = choose_pair(rates.rates, list(fit))
        with progress.working(f"Comparing with {options.other}"):
            compared, why_not = _compare(pair, owns, options, limit)
    problems = judge.fold(problems)
    unfit = judge.unfit(problems)
    return Report(
        ok=not any(one.level == "fail" for one in problems),
        verdict=decide(unfit, compared, options.other, why_not),
        problems=tuple(problems),
        hosts=owns,
        rounds=rates.rounds,
        rates=rates.rates,
        pair=pair if pair and compared else (),
        compared=tuple(compared),
        seconds=round(time.monotonic() - begin, 1),
    )


class _Rates(Struct, frozen=True, kw_only=True):
    """What the rounds gave."""

    rounds: int = 0
    rates: tuple[Rate, ...] = ()
    problems: tuple[Problem, ...] = ()


def _without(owns: Mapping[str, Own], problems: Sequence[Problem]) -> dict[str, Own]:
    unfit = judge.unfit(problems)
    return {host: own for host, own in owns.items() if host not in unfit}


def _rates(fit: Mapping[str, Own], options: Options, limit: Limit) -> tuple[_Rates, list[Problem]]:
    """Measure in rounds; what time did not allow is a problem."""
    if len(fit) < 2:
        return _Rates(), []
    planned, done, rates, faults = run_rounds(fit, options.time_s, limit)
    late = []
    if done < planned:
        cause = f"Time ran out: {done} of {planned} rounds were measured in {options.within_s:g} s."
        late = [Problem(check="time", level="fail", hosts=(), cause=cause, repair=("--within SECONDS",))]
    problems = judge.blame(faults, list(fit)) + judge.of_rates(rates)
    return _Rates(rounds=done, rates=tuple(rates), problems=tuple(problems)), late


def _compare(
    pair: Pair | None, owns: Mapping[str, Own], options: Options, limit: Limit
) -> tuple[list[Compared], str]:
    """Compare, or say why not."""
    if options.against == NONE:
        return [], "that was not asked for."
    if pair is None:
        return [], "no two hosts are fit."
    if options.nccl:
        owns = {host: msgspec.structs.replace(own, nccl=options.nccl) for host, own in owns.items()}
    if options.against == SOCKET and (missing := [host for host in pair if not owns[host].nccl]):
        return (
            [],
            f"{missing[0]} has no NCCL 2.30.3 or newer where they are looked for: --nccl-lib PATH names it.",
        )
    runs = 2 + len(options.sizes) * 2 * (RUNS + 1)
    if limit.left() < runs * (options.time_s + START_S):
        return [], f"it takes {runs * (options.time_s + START_S):.0f} s more; allow them with --within."
    try:
        return compare_pair(pair, owns, options.against, options.sizes, options.time_s, limit), ""
    except HarpError as error:
        return [], f"{error.message} {' '.join(error.hint.split())}".strip()
