# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of runs by the clock: stalls, rates between events, fairness."""

from __future__ import annotations

import pytest

from harplab.bench.timeline import Samples, cut_into_phases, jain_index, longest_stall_ms, reached_ms

MBIT_MS = 125_000  # bytes that 1 Gbit/s brings in a millisecond


def make_samples(*parts: tuple[int, float]) -> Samples:
    """Make samples of 1 ms: (how many, Gbit/s) one after the other."""
    return Samples(0.001, [round(rate * MBIT_MS) for count, rate in parts for _ in range(count)])


def test_a_failover() -> None:
    run = make_samples((1000, 4.0), (80, 0.0), (60, 4.0), (860, 3.0), (10, 0.0), (990, 4.0))
    before, broken, repaired = cut_into_phases(run, [(1.0, "down"), (2.0, "repaired")])
    assert (before.name, before.stall_ms) == ("before", 0)
    assert before.rate_gbps == pytest.approx(4.0)
    assert broken.rate_gbps == pytest.approx(3.0)
    assert broken.stall_ms == 80
    assert broken.settled_ms == pytest.approx(64, abs=1)  # 50 ms of which 34 are at 4
    assert broken.full_ms is None
    assert repaired.stall_ms == 10
    assert repaired.rate_gbps == pytest.approx(4.0)
    assert repaired.full_ms == pytest.approx(5, abs=1)


def test_a_run_that_dies() -> None:
    _, dead = cut_into_phases(make_samples((1000, 1.0), (1000, 0.0)), [(1.0, "down")])
    assert (dead.rate_gbps, dead.stall_ms) == (0.0, 1000)
    assert (dead.settled_ms, dead.full_ms) == (None, None)


def test_a_run_without_events_and_one_without_bytes() -> None:
    (only,) = cut_into_phases(make_samples((100, 1.0)), [])
    assert only.name == "all"
    assert only.rate_gbps == pytest.approx(1.0)
    (nothing,) = cut_into_phases(make_samples((100, 0.0)), [])
    assert (nothing.rate_gbps, nothing.stall_ms) == (0.0, 100)


def test_an_event_after_the_end_is_none() -> None:
    assert len(cut_into_phases(make_samples((100, 1.0)), [(0.05, "down"), (0.2, "repaired")])) == 2


def test_stalls_belong_to_the_stretches_that_they_touch() -> None:
    run = make_samples((90, 1.0), (20, 0.0), (90, 1.0), (3, 0.0), (97, 1.0))
    assert longest_stall_ms(run, 0.0, 0.1) == 20  # it lasts longer than the phase
    assert longest_stall_ms(run, 0.1, 0.2) == 20  # and began before this one
    assert longest_stall_ms(run, 0.12, 0.19) == 0
    assert longest_stall_ms(run, 0.15, 0.3) == 3
    assert longest_stall_ms(run, 0.0, 0.05) == 0


def test_a_rate_is_reached_when_it_is_held_for_a_while() -> None:
    run = make_samples((100, 0.0), (2, 4.0), (100, 0.0), (100, 1.0))
    assert reached_ms(run, 0.0, 0.302, 1.0) == pytest.approx(197, abs=1)
    assert reached_ms(run, 0.0, 0.302, 0.0) is None
    assert reached_ms(run, 0.0, 0.15, 1.0) is None


def test_samples_join() -> None:
    joined = Samples(0.001, [1, 2, 3, 4, 5, 6, 7]).merged(0.003)
    assert joined.interval_s == pytest.approx(0.003)
    assert list(joined.bytes) == [6, 15]
    assert list(Samples(0.01, [1, 2]).merged(0.001).bytes) == [1, 2]


def test_jain() -> None:
    assert jain_index([2.0] * 8) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([1.0, 3.0]) == pytest.approx(0.8)
    assert jain_index([]) == jain_index([0.0]) == 1.0
