# SPDX-License-Identifier: Apache-2.0
"""The table of units: what is written is read as the same, and no other module has such a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harpctl
from harpctl.units import GIB, KIB, MIB, TIB, short_size, size_name, size_of


@given(st.integers(0, 1 << 50))
def test_a_short_size_is_read_as_the_same(size: int) -> None:
    text = short_size(size)
    digits = text.rstrip("KMG")
    assert size_of(digits, text.removeprefix(digits)) == size


@pytest.mark.parametrize(
    ("digits", "unit", "size"), [("4", "", 4), ("64", "kB", 64 * KIB), ("2", "MB", 2 * MIB), ("1", "T", TIB)]
)
def test_units_are_read(digits: str, unit: str, size: int) -> None:
    assert size_of(digits, unit) == size


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 KiB"), (64 * KIB, "64 KiB"), (5 * MIB // 2, "2.5 MiB"), (GIB, "1 GiB")]
)
def test_sizes_in_words(size: int, text: str) -> None:
    assert size_name(size) == text


def test_there_is_one_table() -> None:
    table = re.compile(r"""["'][kK]["']: *(?:10|1024|1 ?<< ?10|KIB)\b""")
    folder = Path(harpctl.__file__).parent
    found = {path.name for path in folder.rglob("*.py") if table.search(path.read_text(encoding="utf-8"))}
    assert found == {"units.py"}
