# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios and their spread; machine time per gigabyte."""

from __future__ import annotations

import pytest

from harpctl.errors import HarpError
from harplab.perf.compare import compare_results, cpu_s_per_gb, summarize_results, time_us
from harplab.perf.hosts import CpuTimes
from harplab.perf.job import Latency, PerfReport, PerfResult, PerfRun


def make_result(gbps: float, *, size: int = 1000, wrong: int = 0, p50: float | None = None) -> PerfResult:
    latency = None if p50 is None else Latency(p50 / 2, p50, p50, p50, p50, p50 * 2, p50)
    return PerfResult(size, 100, 1.0, gbps, gbps / 2, wrong, latency)


def test_time_is_size_over_rate() -> None:
    assert time_us(make_result(8.0)) == pytest.approx(1.0)
    assert time_us(make_result(8.0, p50=5.0)) == 5.0
    assert time_us(make_result(0.0)) == pytest.approx(10_000.0)


def test_summary_takes_medians_and_adds_wrong() -> None:
    row = summarize_results([make_result(1, wrong=1), make_result(9), make_result(3, wrong=2)], [0.3, None, 0.1])
    assert (row.algbw_gbps, row.busbw_gbps, row.wrong, row.runs) == (3, 1.5, 3, 3)
    assert row.cpu_s_per_gb == pytest.approx(0.2)
    assert (row.busbw_min_gbps, row.busbw_max_gbps) == (0.5, 4.5)


def test_summary_without_a_check_has_no_count_of_wrong_data() -> None:
    assert summarize_results([make_result(1)], [None], checked=False).wrong is None


def test_summary_refuses_mixed_sizes() -> None:
    with pytest.raises(HarpError, match="one message size"):
        summarize_results([make_result(1), make_result(1, size=8)], [None, None])
    with pytest.raises(HarpError, match="one message size"):
        summarize_results([], [])


def test_latency_keeps_the_extremes() -> None:
    row = summarize_results(
        [make_result(1, p50=2.0), make_result(1, p50=4.0), make_result(1, p50=10.0)], [None] * 3
    )
    assert row.latency_us is not None
    assert (row.latency_us.min, row.latency_us.p50, row.latency_us.max) == (1.0, 4.0, 20.0)


def test_ratio_of_rates_pairs_neighbours() -> None:
    ours, theirs = (
        [make_result(10), make_result(20), make_result(60)],
        [make_result(10), make_result(40), make_result(20)],
    )
    row, other = summarize_results(ours, [0.1] * 3), summarize_results(theirs, [0.4] * 3)
    ratio = compare_results(ours, theirs, row, other, by_time=False)
    assert ratio.of_medians == pytest.approx(1.0)
    assert (ratio.least, ratio.greatest) == (0.5, 3.0)
    assert ratio.cpu == pytest.approx(0.25)


def test_ratio_of_times() -> None:
    ours, theirs = [make_result(1, p50=3.0)], [make_result(1, p50=6.0)]
    row, other = summarize_results(ours, [None]), summarize_results(theirs, [None])
    ratio = compare_results(ours, theirs, row, other, by_time=True)
    assert ratio.of_medians == ratio.least == ratio.greatest == 0.5
    assert ratio.cpu is None


def test_ratio_to_nothing_is_infinite() -> None:
    ours, theirs = [make_result(1)], [make_result(0)]
    row, other = summarize_results(ours, [0.1]), summarize_results(theirs, [None])
    ratio = compare_results(ours, theirs, row, other, by_time=False)
    assert ratio.of_medians == float("inf")
    assert ratio.cpu is None


def make_report(mode: str, messages: int, size: int) -> PerfReport:
    row = PerfResult(size, messages, 1.0, 8.0, 8.0, 0)
    return PerfReport("x.so", "X", 12, mode, 2, 1, 8, check=True, results=[row])


def test_cpu_per_gigabyte_takes_start_up_off() -> None:
    run = PerfRun(make_report("stream", 2000, 1_000_000), CpuTimes(1.5, 0.5))
    assert cpu_s_per_gb(run, 0.5) == pytest.approx(0.5)
    assert cpu_s_per_gb(run, 9.0) == 0.0


def test_cpu_per_gigabyte_means_nothing_for_latency_or_no_data() -> None:
    assert cpu_s_per_gb(PerfRun(make_report("pingpong", 10, 8), CpuTimes(1, 0)), 0) is None
    assert cpu_s_per_gb(PerfRun(make_report("stream", 0, 8), CpuTimes(1, 0)), 0) is None
