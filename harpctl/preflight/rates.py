# SPDX-License-Identifier: Apache-2.0
"""Rates between two hosts: harp-perf over ssh, all pairs in rounds, then one pair in detail.

Each host runs the harp-perf and the plugin that it has itself. The ranks meet at the first one's ENI.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harpctl.errors import HarpError
from harpctl.ip import with_port
from harpctl.perf.baseline import cache_dir, compile_shim
from harpctl.perf.hosts import CpuTimes, Program, RemoteHosts
from harpctl.perf.job import Mode, PerfJob, run_perf
from harpctl.perf.measure import Measured, Side, measure
from harpctl.preflight.diagnosis import Fault
from harpctl.preflight.model import Comparison, HostState, Rate
from harpctl.preflight.rounds import Pair, rounds
from harpctl.preflight.sessions import Deadline

OWN_PERF, OWN_PLUGIN, OWN_NCCL = Path("@perf@"), Path("@plugin@"), "@nccl@"  # what a host has itself
MESSAGE_BYTES = 128 << 10
CONNECTIONS, INFLIGHT = 2, 4
WARMUP = 4  # messages: many would take long where an ENI is slow
INTERVAL_MS = 10
START_S = 15.0  # how long a run may take beside its measured time
RUNS = 3
SOCKET = "socket"


@dataclasses.dataclass(frozen=True)
class ShortJob(PerfJob):
    """A run that is ended soon where it hangs."""

    deadline: Deadline = dataclasses.field(default_factory=Deadline)

    def timeout_s(self) -> float:
        """See PerfJob."""
        return min(self.time_s * 4 + START_S, self.deadline.left())


class PairHosts(RemoteHosts):
    """Two hosts that a preflight knows; what is not theirs is copied, inside `with`."""

    def __init__(self, pair: Pair, states: Mapping[str, HostState]) -> None:
        super().__init__(pair)
        self._states = [states[host] for host in pair]

    def place(self, program: Program) -> Program:
        """See Hosts."""
        if program.plugin == OWN_PLUGIN:
            return program
        return Program(program.perf, Path(self._copy(program.plugin)), program.env)

    def env(self, rank: int) -> dict[str, str]:
        """See Hosts."""
        return {"NCCL_SOCKET_IFNAME": "=" + ",".join(eni.name for eni in self._states[rank].enis)}

    def rendezvous(self) -> str:
        """See Hosts."""
        state = self._states[0]
        address = state.enis[0].address
        low, high = state.ephemeral
        port = low + secrets.randbelow(high - low + 1)
        return with_port(address, port)

    def command(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """See Hosts."""
        state = self._states[rank]
        names = {str(OWN_PERF): state.perf, str(OWN_PLUGIN): state.plugin}
        words = [names.get(word, word) for word in argv]
        return super().command(rank, words, {n: v.replace(OWN_NCCL, state.nccl) for n, v in env.items()})

    def cpu(self) -> CpuTimes:
        """Return zeros: preflight does not report machine time."""
        return CpuTimes(0.0, 0.0)


def run_rounds(
    states: Mapping[str, HostState], time_s: float, deadline: Deadline
) -> tuple[int, int, list[Rate], list[Fault]]:
    """Measure all pairs, ENI by ENI at once; return the rounds there are and were, rates, and what failed."""
    planned = rounds(list(states))
    rates: list[Rate] = []
    faults: list[Fault] = []
    for number, pairs in enumerate(planned):
        if deadline.left() < time_s + START_S / 3:
            return len(planned), number, rates, faults
        lanes = [
            (pair, lane) for pair in pairs for lane in range(min(len(states[host].enis) for host in pair))
        ]
        with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
            for found in pool.map(lambda one: _run_lane(states, one[0], one[1], time_s, deadline), lanes):
                rates += found if isinstance(found, list) else []
                faults += [found] if isinstance(found, Fault) else []
    return len(planned), len(planned), rates, faults


def _run_lane(
    states: Mapping[str, HostState], pair: Pair, lane: int, time_s: float, deadline: Deadline
) -> list[Rate] | Fault:
    job = ShortJob(
        mode=Mode.BIDIR.value,
        sizes_bytes=(MESSAGE_BYTES,),
        connections=CONNECTIONS,
        inflight=INFLIGHT,
        check=False,
        time_s=time_s,
        interval_ms=INTERVAL_MS,
        warmup=WARMUP,
        device=lane,
        deadline=deadline,
    )
    program = Program(OWN_PERF, OWN_PLUGIN, {"HARP_DEVICES": "enis"})
    try:
        results = run_perf(PairHosts(pair, states), program, job).report.results
    except HarpError as error:
        reason = " ".join(error.hint.split()) or error.message
        return Fault(check="rate", source=pair[0], target=pair[1], cause=f"HARP does not work: {reason}.")
    connections = [one for result in results if result.window for one in result.window.connections]
    return [
        Rate(
            source=pair[rank],
            target=pair[1 - rank],
            eni=states[pair[rank]].enis[lane].name,
            lane=lane,
            gbps=sum(one.bytes for one in connections if one.from_rank == rank) * 8 / time_s / 1e9,
        )
        for rank in (0, 1)
    ]


def choose_pair(rates: Sequence[Rate], fit: Sequence[str]) -> Pair | None:
    """Return the pair of fit hosts whose rate is in the middle; None without one."""
    sums: dict[Pair, float] = {}
    for rate in rates:
        pair = (rate.source, rate.target) if rate.source < rate.target else (rate.target, rate.source)
        if set(pair) <= set(fit):
            sums[pair] = sums.get(pair, 0.0) + rate.gbps
    ordered = sorted(sums, key=lambda pair: sums[pair])
    return ordered[len(ordered) // 2] if ordered else None


def compare_pair(
    pair: Pair,
    states: Mapping[str, HostState],
    against: str,
    sizes: Sequence[int],
    time_s: float,
    deadline: Deadline,
) -> list[Comparison]:
    """Measure HARP against another plugin, or NCCL's own sockets, between two hosts, in turns."""
    if against == SOCKET:
        other = Program(OWN_PERF, compile_shim(cache_dir()), {"NCCL_LIB": OWN_NCCL})
    else:
        other = Program(OWN_PERF, Path(against))
    sides = (Side("HARP", Program(OWN_PERF, OWN_PLUGIN)), Side("other", other))
    job = ShortJob(
        mode=Mode.STREAM.value,
        sizes_bytes=tuple(sizes),
        check=False,
        time_s=time_s,
        warmup=WARMUP,
        deadline=deadline,
    )
    with PairHosts(pair, states) as hosts:
        return _compared(measure(hosts, sides, job, RUNS, lambda _text: None))


def _compared(measured: Measured) -> list[Comparison]:
    return [
        Comparison(
            bytes=ratio.bytes,
            harp_gbps=ours.busbw_gbps,
            other_gbps=theirs.busbw_gbps,
            ratio=ratio.of_medians,
            least=ratio.least,
            greatest=ratio.greatest,
        )
        for ratio, ours, theirs in zip(measured.ratios, *measured.rows, strict=True)
    ]
