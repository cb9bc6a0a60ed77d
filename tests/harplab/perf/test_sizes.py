# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harpctl.errors import ExitCode, HarpError
from harpctl.units import short_size
from harplab.perf.sizes import parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("8", 8), ("0", 0), ("1K", 1024), ("64k", 65536), ("1.5M", 1572864), ("1G", 1 << 30), (" 4KiB ", 4096)],
)
def test_parse_size(text: str, bytes_: int) -> None:
    assert parse_size(text) == bytes_


@pytest.mark.parametrize("text", ["", "K", "-1", "1.3", "8X", "2G", "1e3", "0x10", "99999999999999999999"])
def test_parse_size_refuses(text: str) -> None:
    with pytest.raises(HarpError) as caught:
        parse_size(text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert repr(text.strip()) in caught.value.message


def test_parse_sizes_keeps_the_order() -> None:
    assert parse_sizes("1M,8,1K") == (1048576, 8, 1024)


@given(st.integers(0, 1 << 30))
def test_format_is_read_back(bytes_: int) -> None:
    assert parse_size(short_size(bytes_)) == bytes_
