# SPDX-License-Identifier: Apache-2.0
"""The report of a timed run: the table, the notes below it, and its JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from harpctl.console import Console
from harplab.bench.table import percent_text, print_rows
from harplab.bench.timeline import Phase, Samples, cut_into_phases, jain_index
from harplab.bench.window import WindowResult
from harplab.perf.counts import lost_share
from harplab.perf.job import Latency

EXPLAINED = (
    "rate: of the later half of a phase; stall: the longest time without a byte",
    "settled, full: until it first ran at 0.9 of that rate, and of the rate before",
)
FLOW_SETTLES_SHARE = 0.25  # the share of the run before TCP's share is taken


@dataclasses.dataclass(frozen=True)
class TimedRun:
    """One side's run by the clock."""

    name: str
    samples: Samples
    phases: tuple[Phase, ...]
    connections_gbps: tuple[float, ...]
    jain: float
    latency_us: Latency | None
    undelivered: int
    wrong: int
    failures: tuple[str, ...]
    events: tuple[tuple[float, str], ...]
    tcp_gbps: float | None
    tcp_beside_gbps: float | None  # the side's own rate in the same time
    tcp: Samples | None
    lost_share: float | None  # the share of all packets that the network lost; None: nobody counted

    @property
    def ended_well(self) -> bool:
        """Return whether nothing failed and all accepted messages arrived."""
        return not self.failures and not self.undelivered and not self.wrong


def timed_run_of(name: str, window_result: WindowResult, seconds: float, interval_s: float) -> TimedRun:
    """Fold a run into figures; one without a report is one in which nothing arrived."""
    result = window_result.report.results[0] if window_result.report else None
    window = result.window if result else None
    samples = Samples(interval_s, window.samples if window else [0] * round(seconds / interval_s))
    events = tuple((event.at_s, event.name) for event in window_result.events)
    rates = [c.bytes * 8 / 1e9 / samples.seconds() for c in window.connections] if window else []
    failures = [f"rank {failure.rank}: {failure.text}" for failure in window.failures] if window else []
    if window_result.errors and not failures:
        failures = [window_result.errors]
    settled_s = samples.seconds() * FLOW_SETTLES_SHARE
    tcp = window_result.competing_flow
    return TimedRun(
        name=name,
        samples=samples,
        phases=tuple(cut_into_phases(samples, events)),
        connections_gbps=tuple(rates),
        jain=jain_index(rates),
        latency_us=result.latency_us if result else None,
        undelivered=window.undelivered if window else 0,
        wrong=result.wrong if result else 0,
        failures=tuple(failures),
        events=events,
        tcp=tcp,
        tcp_gbps=tcp.rate_gbps(settled_s, samples.seconds()) if tcp else None,
        tcp_beside_gbps=samples.rate_gbps(settled_s, samples.seconds()) if tcp else None,
        lost_share=lost_share([window_result.packets]),
    )


def _milliseconds_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def table_of(runs: Sequence[TimedRun]) -> list[list[str]]:
    """Lay out a line per phase of each side."""
    lines = [
        ["side", "phase", "from", "rate", "of before", "stall", "settled", "full"],
        ["", "", "(s)", "(Gbit/s)", "", "(ms)", "(ms)", "(ms)"],
    ]
    for run in runs:
        before = run.phases[0].rate_gbps
        for number, part in enumerate(run.phases):
            later = number > 0
            lines.append(
                [
                    run.name,
                    part.name,
                    f"{part.from_s:.2f}",
                    f"{part.rate_gbps:.3f}",
                    f"{part.rate_gbps / before:.2f}" if later and before else "-",
                    _milliseconds_text(part.stall_ms),
                    _milliseconds_text(part.settled_ms) if later else "-",
                    _milliseconds_text(part.full_ms) if later else "-",
                ]
            )
    return lines


def notes_of(run: TimedRun) -> list[str]:
    """Return what the table has no place for."""
    lines = []
    if run.connections_gbps:
        total, count = sum(run.connections_gbps), len(run.connections_gbps)
        each = f", each {min(run.connections_gbps):.3f} to {max(run.connections_gbps):.3f}" if count > 1 else ""
        fair = f"; Jain index {run.jain:.4f}" if count > 1 else ""
        lines.append(f"{total:.3f} Gbit/s on {count} connection(s){each}{fair}")
    if run.latency_us:
        p50, p99 = run.latency_us.p50, run.latency_us.p99
        lines.append(
            f"time of a message: p50 {p50:.0f} us, p99 {p99:.0f} us, {p99 / max(p50, 1e-9):.2f} times p50"
        )
    if run.tcp_gbps is not None and run.tcp_beside_gbps is not None:
        both = run.tcp_gbps + run.tcp_beside_gbps
        share = run.tcp_gbps / both if both else 0.0
        lines.append(
            f"a flow of kernel TCP beside it: {run.tcp_gbps:.3f} Gbit/s to {run.tcp_beside_gbps:.3f}, "
            f"{share * 100:.0f} % of both"
        )
    if run.lost_share is not None:
        lines.append(f"the network dropped {percent_text(run.lost_share)} % of all packets")
    if run.undelivered:
        lines.append(f"{run.undelivered} accepted messages did not arrive")
    if run.wrong:
        lines.append(f"{run.wrong} messages arrived with wrong bytes")
    lines += [f"failed: {failure}" for failure in run.failures]
    return [f"{run.name}: {line}" for line in lines]


def print_timed_runs(console: Console, runs: Sequence[TimedRun], notes: Sequence[str]) -> None:
    """Print the table and all notes."""
    lines = [line for run in runs for line in notes_of(run)]
    print_rows(
        console,
        table_of(runs),
        [*notes, *EXPLAINED, *lines],
    )
