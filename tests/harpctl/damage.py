# SPDX-License-Identifier: Apache-2.0
"""Strategies of hypothesis for data from elsewhere: random JSON, and good data of which a part is changed."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

HOSTILE = "a\x1b]0;x\x07\r\u202e"
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 1 << 63, 10**400])
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.just(HOSTILE)
)
JSON: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged_data(draw: st.DrawFn, good: Any) -> Any:
    """Return plain data with one part of it replaced, left out or doubled."""
    if isinstance(good, dict) and good and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(good)))
        if not draw(st.integers(0, 9)):
            return {name: value for name, value in good.items() if name != key}
        return {**good, key: draw(damaged_data(good[key]))}
    if isinstance(good, list) and good and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(good) - 1))
        return [*good[:at], draw(damaged_data(good[at])), *good[draw(st.sampled_from([at, at + 1])) :]]
    return draw(JSON)


@st.composite
def damaged_bytes(draw: st.DrawFn, good: bytes) -> bytes:
    """Return bytes of which some are others, and which may end early."""
    at = draw(st.integers(0, len(good)))
    junk = draw(st.binary(min_size=1, max_size=16))
    data = good[:at] + junk + good[at + draw(st.sampled_from([0, len(junk)])) :]
    return data[: draw(st.sampled_from([len(data), at, at // 2]))]
