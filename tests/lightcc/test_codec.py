# SPDX-License-Identifier: Apache-2.0
"""Codecs: message and residual together are the vector, whatever is in it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.draws import draw_examples

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'torch==2.13.0+cpu'")

from lightcc.codec import BLOCK, Int8, TopK  # noqa: E402  # they need torch

NUMELS = st.one_of(st.integers(1, 40), st.sampled_from([255, 256, 257, 600, 1024]))
FINITE = st.floats(-(2.0**99), 2.0**99, width=32)
SPECIAL = st.sampled_from([math.inf, -math.inf, math.nan, 1e-45, -1e-40, 65504.0, 65520.0, -1e9, 0.0, -0.0])
RATIOS = st.floats(0.001, 1.0)
Tensor = Any


@st.composite
def vectors(draw: st.DrawFn, *, special: bool = False) -> Tensor:
    """Draw a vector: noise of a seed, and a few values of any kind at any place."""
    numel = draw(NUMELS)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 16)))
    vector = torch.randn(numel, generator=generator) * draw(st.sampled_from([1e-38, 1e-6, 1.0, 1e6]))
    values = st.one_of(FINITE, SPECIAL) if special else FINITE
    for place, value in draw(st.dictionaries(st.integers(0, numel - 1), values, max_size=8)).items():
        vector[place] = value
    return vector


def decoded(codec: Any, wire: Tensor, numel: int) -> Tensor:
    total = torch.zeros(numel)
    codec.add(total, wire)
    return total


@given(vectors(), RATIOS, st.booleans())
@draw_examples(150)
@example(torch.tensor([70000.0, -1e30, 1.0]), 1.0, True)
def test_topk_loses_nothing(vector: Tensor, ratio: float, fp16: bool) -> None:
    codec = TopK(len(vector), ratio, fp16=fp16)
    rest = vector.clone()
    wire = codec.encode(rest)
    assert wire.numel() == codec.wire_bytes
    assert codec.wire_bytes == -(-codec.k * (6 if fp16 else 8) // 8) * 8
    sent = decoded(codec, wire, len(vector))
    assert codec.k == min(len(vector), max(1, math.ceil(ratio * len(vector))))
    assert int((sent != 0).sum()) <= codec.k
    torch.testing.assert_close(sent.double() + rest.double(), vector.double(), rtol=2e-7, atol=0)
    if not fp16:
        assert torch.equal(sent + rest, vector)
        left = rest.abs().max()
        assert codec.k == len(vector) or bool((sent[sent != 0].abs() >= left).all())


@given(vectors())
@draw_examples(150)
@example(torch.full((BLOCK + 1,), 1e-45))
def test_int8_loses_nothing(vector: Tensor) -> None:
    codec = Int8(len(vector))
    rest = vector.clone()
    wire = codec.encode(rest)
    assert wire.numel() == codec.wire_bytes == -(-codec.blocks * (4 + BLOCK) // 8) * 8
    sent = decoded(codec, wire, len(vector))
    for begin in range(0, len(vector), BLOCK):
        part = slice(begin, begin + BLOCK)
        greatest = vector[part].abs().max().double()
        assert bool(((sent[part].double() + rest[part] - vector[part]).abs() <= greatest * 2e-7).all())
        bound = max(greatest / 127, torch.finfo(torch.float32).tiny) * 0.51
        assert bool((rest[part].abs() <= bound).all())


@given(vectors(special=True), st.sampled_from(["topk", "fp16", "int8"]))
@draw_examples(150)
def test_what_is_not_finite_is_sent(vector: Tensor, kind: str) -> None:
    """All ranks see it in the sum, and skip the step together."""
    codec = Int8(len(vector)) if kind == "int8" else TopK(len(vector), 0.1, fp16=kind == "fp16")
    sent = decoded(codec, codec.encode(vector.clone()), len(vector))
    assert bool(torch.isfinite(sent).all()) == bool(torch.isfinite(vector).all())


@given(st.integers(1, 3000), st.integers(1, 30), RATIOS)
@draw_examples(50)
def test_feedback_sends_everything_in_time(seed: int, numel: int, ratio: float) -> None:
    """A constant gradient arrives as it is, up to what the residual holds."""
    gradient = torch.randn(numel, generator=torch.Generator().manual_seed(seed))
    for codec in (TopK(numel, ratio, fp16=False), TopK(numel, ratio, fp16=True), Int8(numel)):
        rest, total = torch.zeros(numel), torch.zeros(numel)
        for _step in range(20):
            rest = rest + gradient
            codec.add(total, codec.encode(rest))
        torch.testing.assert_close(total + rest, 20 * gradient, rtol=1e-5, atol=1e-4)


def test_more_elements_than_indices_are_refused() -> None:
    with pytest.raises(ValueError, match="2147483648 elements cannot be numbered by int32"):
        TopK(1 << 31, 0.01, fp16=False)
