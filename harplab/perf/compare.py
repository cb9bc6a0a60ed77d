# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a benchmark: medians of repeated runs, the ratio of two sides and how far it scatters.

Pure functions. Bandwidths are Gbit/s, times microseconds, machine time seconds per gigabyte (10^9 bytes).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from harpctl.errors import HarpError
from harplab.perf.job import Latency, Mode, PerfResult, PerfRun


@dataclasses.dataclass(frozen=True)
class Row:
    """One message size of one side: medians over its runs; wrong messages are added up."""

    bytes: int
    messages: int
    time_us: float
    algbw_gbps: float
    busbw_gbps: float
    wrong: int | None  # None: nobody looked
    cpu_s_per_gb: float | None
    latency_us: Latency | None
    runs: int
    busbw_min_gbps: float
    busbw_max_gbps: float
    time_min_us: float
    time_max_us: float
    lost_share: float | None  # the share of the packets of all runs that the network lost; None: nobody counted


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The first side over the second: of the medians, and the least and greatest of the pairs of runs."""

    bytes: int
    of_medians: float
    least: float
    greatest: float
    cpu: float | None


def time_us(result: PerfResult) -> float:
    """Return the time of one message: half a round trip where that was measured, else size over rate."""
    if result.latency_us is not None:
        return result.latency_us.p50
    if result.algbw_gbps > 0:
        return result.bytes * 8 / 1000 / result.algbw_gbps
    return result.seconds * 1e6 / max(result.messages, 1)


def cpu_s_per_gb(run: PerfRun, startup_busy_s: float) -> float | None:
    """Return the machine time per gigabyte of a run of one size, less what a run costs that moves nothing."""
    report = run.report
    moved = sum(result.messages * result.bytes for result in report.results) / 1e9
    busy_s = run.cpu.busy_s - startup_busy_s
    if moved <= 0 or report.mode == Mode.PINGPONG.value:
        return None
    return max(busy_s, 0.0) / moved


def median_latency(values: Sequence[Latency]) -> Latency | None:
    """Take the median of each percentile; of least and greatest, the least and greatest."""
    if not values:
        return None

    def middle(field: str) -> float:
        return float(statistics.median(getattr(value, field) for value in values))

    return Latency(
        min=min(value.min for value in values),
        p50=middle("p50"),
        p90=middle("p90"),
        p99=middle("p99"),
        p999=middle("p999"),
        max=max(value.max for value in values),
        mean=middle("mean"),
    )


def summarize_results(
    results: Sequence[PerfResult],
    cpu: Sequence[float | None],
    *,
    checked: bool = True,
    lost_share: float | None = None,
) -> Row:
    """Fold the runs of one size into a row."""
    if not results or len({result.bytes for result in results}) != 1:
        raise HarpError("The runs of one row have to be of one message size.")
    times = [time_us(result) for result in results]
    rates = [result.busbw_gbps for result in results]
    known = [value for value in cpu if value is not None]
    return Row(
        bytes=results[0].bytes,
        messages=round(statistics.median(result.messages for result in results)),
        time_us=statistics.median(times),
        algbw_gbps=statistics.median(result.algbw_gbps for result in results),
        busbw_gbps=statistics.median(rates),
        wrong=sum(result.wrong for result in results) if checked else None,
        cpu_s_per_gb=statistics.median(known) if known else None,
        latency_us=median_latency([result.latency_us for result in results if result.latency_us is not None]),
        runs=len(results),
        busbw_min_gbps=min(rates),
        busbw_max_gbps=max(rates),
        time_min_us=min(times),
        time_max_us=max(times),
        lost_share=lost_share,
    )


def compare_results(
    ours: Sequence[PerfResult], theirs: Sequence[PerfResult], our_row: Row, their_row: Row, *, by_time: bool
) -> Ratio:
    """Relate two sides whose runs alternated, so that run i of one is the neighbour of run i of the other."""

    def figure(result: PerfResult) -> float:
        return time_us(result) if by_time else result.busbw_gbps

    cpu = None
    if our_row.cpu_s_per_gb is not None and their_row.cpu_s_per_gb:
        cpu = our_row.cpu_s_per_gb / their_row.cpu_s_per_gb
    return relate_runs(our_row.bytes, list(map(figure, ours)), list(map(figure, theirs)), cpu)


def relate_runs(
    size_bytes: int, ours: Sequence[float], theirs: Sequence[float], cpu: float | None = None
) -> Ratio:
    """Relate the figures of one size, of which each pair was measured one after the other."""
    pairs = [divide(a, b) for a, b in zip(ours, theirs, strict=True)]
    medians = divide(statistics.median(ours), statistics.median(theirs))
    return Ratio(size_bytes, medians, min(pairs), max(pairs), cpu)


def divide(numerator: float, denominator: float) -> float:
    """Return the quotient; infinity for a divisor of 0."""
    return numerator / denominator if denominator else float("inf")
