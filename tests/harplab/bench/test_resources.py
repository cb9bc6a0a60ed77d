# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab resources`: what it reads and writes; tests/lab looks at jobs."""

from __future__ import annotations

import pytest

from harpctl.errors import ExitCode, HarpError
from harplab.bench.resources import Taken, parse_peers, resources_table


def test_counts_of_peers_are_read() -> None:
    assert parse_peers("1,8,256") == (1, 8, 256)


@pytest.mark.parametrize("text", ["", "0", "257", "8,", "1,x", "-1"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(HarpError, match="expected counts from 1 to 256") as failure:
        parse_peers(text)
    assert failure.value.exit_code == ExitCode.USAGE


def test_the_table_has_a_line_for_each_job() -> None:
    lines = resources_table([Taken(8, 4, "small", 26, 60, 2, 20480)]).splitlines()
    assert lines[-1] == "| 8 | 4 | small | 26 | 60 | 2 | 20 MB |"
    assert {line.count("|") for line in lines} == {8}
