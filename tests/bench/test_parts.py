# SPDX-License-Identifier: Apache-2.0
"""The pattern and the histogram of harp-perf, through ctypes."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable

import pytest

from tests.bench.conftest import ROOT, build_shared

SOURCES = [ROOT / "plugin/bench" / name for name in ("pattern.c", "latency.c")]
LATENCY_BYTES = 8 * 4 + 4 * (40 << 7)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = ctypes.CDLL(str(build_shared(tmp_path_factory.mktemp("parts") / "parts.so", *SOURCES)))
    library.harp_pattern_key.restype = ctypes.c_uint64
    library.harp_pattern_key.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_uint64]
    library.harp_pattern_fill.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
    library.harp_pattern_fill.restype = None
    library.harp_pattern_check.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
    library.harp_pattern_check.restype = ctypes.c_bool
    library.harp_pattern_find_wrong.argtypes = library.harp_pattern_check.argtypes
    library.harp_pattern_find_wrong.restype = ctypes.c_size_t
    library.harp_latency_add.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.harp_latency_percentile.argtypes = [ctypes.c_void_p, ctypes.c_double]
    library.harp_latency_percentile.restype = ctypes.c_uint64
    return library


def make_message(parts: ctypes.CDLL, size: int, key: int) -> ctypes.Array[ctypes.c_char]:
    data = ctypes.create_string_buffer(b"\xee" * (size + 64), size + 64)
    parts.harp_pattern_fill(data, size, key)
    assert data.raw[size:] == b"\xee" * 64  # wrote no further
    return data


def test_pattern_is_found_right_and_any_flip_wrong(parts: ctypes.CDLL) -> None:
    for size in range(200):
        key = parts.harp_pattern_key(0, 1, 0, size)
        data = make_message(parts, size, key)
        assert parts.harp_pattern_check(data, size, key)
        for at in range(size):
            data[at] = bytes([data.raw[at] ^ 1 << (at % 8)])
            assert not parts.harp_pattern_check(data, size, key)
            assert parts.harp_pattern_find_wrong(data, size, key) == at
            data[at] = bytes([data.raw[at] ^ 1 << (at % 8)])


def test_pattern_shows_shifts_and_other_messages(parts: ctypes.CDLL) -> None:
    size = 4096
    key = parts.harp_pattern_key(0, 1, 0, 7)
    right = make_message(parts, size, key).raw[:size]
    for shift in (1, 8, 64, 128, 1448):
        moved = ctypes.create_string_buffer(right[shift:] + right[:shift], size)
        assert not parts.harp_pattern_check(moved, size, key)
    for other in [(0, 1, 0, 6), (0, 1, 0, 8), (0, 1, 1, 7), (1, 0, 0, 7), (0, 2, 0, 7)]:
        assert make_message(parts, size, parts.harp_pattern_key(*other)).raw[:size] != right


@pytest.mark.parametrize(
    "draw",
    [
        lambda dice: dice.randrange(100),
        lambda dice: dice.randrange(1_000, 50_000),
        lambda dice: int(dice.lognormvariate(10, 2)),
        lambda _: 5_000_000_000,
    ],
)
def test_percentiles(parts: ctypes.CDLL, draw: Callable[[random.Random], int]) -> None:
    dice = random.Random(4711)
    samples = sorted(draw(dice) for _ in range(20_000))
    histogram = ctypes.create_string_buffer(LATENCY_BYTES)
    parts.harp_latency_init(histogram)
    for sample in samples:
        parts.harp_latency_add(histogram, sample)
    for share in (0.5, 0.9, 0.99, 0.999, 1.0):
        exact = samples[max(0, -int(-share * len(samples) // 1) - 1)]
        assert parts.harp_latency_percentile(histogram, share) == pytest.approx(exact, rel=1 / 100, abs=1)
    assert fields_of(histogram) == [len(samples), samples[0], samples[-1], sum(samples)]


def fields_of(histogram: ctypes.Array[ctypes.c_char]) -> list[int]:
    words: Iterable[int] = (ctypes.c_uint64 * 4).from_buffer(histogram)
    return list(words)


def test_no_samples(parts: ctypes.CDLL) -> None:
    histogram = ctypes.create_string_buffer(LATENCY_BYTES)
    parts.harp_latency_init(histogram)
    assert parts.harp_latency_percentile(histogram, 0.5) == 0
