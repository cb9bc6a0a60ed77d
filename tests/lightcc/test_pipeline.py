# SPDX-License-Identifier: Apache-2.0
"""The formula of the lab's times: how much of the exchanges of two columns ranks hide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draw_examples
from tests.lightcc.pipeline import Exchange, added_s, column_of

RATE = 100.0  # bytes/s
COLUMNS = st.lists(
    st.lists(st.tuples(st.floats(0, 9), st.floats(1, 900)), min_size=1, max_size=3), min_size=1, max_size=4
)


@pytest.mark.parametrize(
    ("columns", "added"),
    [
        ([[(5, 300)]], 3),  # one column: nothing overlaps
        ([[(5, 300), (1, 200)]], 5),
        ([[(5, 300)], [(5, 300)]], 6),  # ready at once: they wait for each other
        ([[(5, 300)], [(6, 300)]], 5),  # the link is the longest stage: it begins 1 s before the last is ready
        ([[(5, 300)], [(9, 300)]], 3),  # the ranks are: only the last one's exchange is seen
        ([[(5, 300), (1, 100)], [(6, 300), (1, 100)]], 6),  # 5, then 8 s without a pause, not 7
        ([[(0, 100), (9, 100)], [(1, 100)]], 2),  # the second column hides in the pause of the first
    ],
)
def test_what_columns_add(columns: list[list[Exchange]], added: float) -> None:
    assert added_s(columns, RATE) == pytest.approx(added)


@given(COLUMNS)
@draw_examples(100)
def test_bounds(columns: list[list[Exchange]]) -> None:
    """All that is sent is the most; the least is what the column that is ready last sends in the end."""
    ends = [(sum(pause for pause, _sent in column), column[-1][1]) for column in columns]
    everything = sum(sent for column in columns for _pause, sent in column) / RATE
    assert max(ends)[1] / RATE - 1e-9 <= added_s(columns, RATE) <= everything + 1e-9


def test_a_column_begins_when_its_last_rank_is_ready() -> None:
    first = [(10.0, 12.0, 7.0), (13.0, 14.0, 8.0)]
    second = [(11.0, 12.0, 7.0), (12.5, 14.0, 8.0)]
    assert column_of([first, second]) == [(11.0, 7.0), (1.0, 8.0)]
