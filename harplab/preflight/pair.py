# SPDX-License-Identifier: Apache-2.0
"""Measures HARP between two hosts of a preflight beside another plugin, in turns, over ssh.

Each host runs the harp-perf and the plugin that it has itself. The ranks meet at the first one's ENI.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from harpctl.preflight.model import Comparison, HostState
from harpctl.preflight.sessions import Deadline
from harplab.perf.baseline import cache_dir, compile_shim
from harplab.perf.hosts import CpuTimes, Program, RemoteHosts
from harplab.perf.job import Mode, PerfJob
from harplab.perf.measure import Measured, Side, measure_sides
from harplab.preflight.rates import rendezvous
from harplab.preflight.rounds import Pair

OWN_PERF, OWN_PLUGIN, OWN_NCCL = Path("@perf@"), Path("@plugin@"), "@nccl@"  # what a host has itself
WARMUP = 4  # messages: many would take long where an ENI is slow
START_S = 15.0  # how long a run may take beside its measured time


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
        return Program(program.perf, Path(self._copy_file(program.plugin)), program.env)

    def env(self, rank: int) -> dict[str, str]:
        """See Hosts."""
        return {"NCCL_SOCKET_IFNAME": "=" + ",".join(eni.name for eni in self._states[rank].enis)}

    def rendezvous(self) -> str:
        """See Hosts."""
        return rendezvous(self._states[0])

    def command(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """See Hosts."""
        state = self._states[rank]
        names = {str(OWN_PERF): state.perf, str(OWN_PLUGIN): state.plugin}
        words = [names.get(word, word) for word in argv]
        return super().command(rank, words, {n: v.replace(OWN_NCCL, state.nccl) for n, v in env.items()})

    def cpu(self) -> CpuTimes:
        """Return zeros: preflight does not report machine time."""
        return CpuTimes(0.0, 0.0)


def compare_pair(
    pair: Pair,
    states: Mapping[str, HostState],
    against: Path | None,
    sizes: Sequence[int],
    time_s: float,
    runs: int,
    deadline: Deadline,
) -> list[Comparison]:
    """Measure HARP against another plugin, or NCCL's own sockets (None), so many runs of each size."""
    if against is None:
        other = Program(OWN_PERF, compile_shim(cache_dir()), {"NCCL_LIB": OWN_NCCL})
    else:
        other = Program(OWN_PERF, against)
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
        return _make_comparisons(measure_sides(hosts, sides, job, runs, lambda _text: None))


def _make_comparisons(measured: Measured) -> list[Comparison]:
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
