# SPDX-License-Identifier: Apache-2.0
"""Jobs on the oldest kernel that there is a package of, with itself and with the newest one.

What `auto` chose is in docs/reference/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.vm.conftest import boot_guests
from tests.vm.guest_image import NEWEST, OLDEST, guest_image
from tests.vm.guests import WHOLE, Guests, assert_nothing_left, config_of, finish_job, start_job

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

NIC = "eth2"  # with a real NIC's offloads
OLD = "driver udp gso+gro"  # what is there since Linux 5.0


class Pair(NamedTuple):
    """Two guests, and what the second one's kernel is."""

    guests: Guests
    second: str


@pytest.fixture(scope="module", params=[OLDEST, NEWEST], ids=["two old", "old and new"])
def pair(
    root: Path, payload: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Pair]:
    images = [guest_image(root / ".cache" / "vm", kernel) for kernel in (OLDEST, request.param)]
    with boot_guests((images[0], images[1]), payload, tmp_path_factory.mktemp("pair")) as guests:
        yield Pair(guests, request.param)


@pytest.mark.parametrize(
    ("driver", "versions", "chosen"),
    [
        ("auto", (4, 6), OLD),
        ("udp", (6, 4), OLD),
        ("tcp", (4, 6), "driver tcp"),
        ("xdp", (6, 4), "driver xdp native copy"),
    ],
)
def test_data_arrives_whole(pair: Pair, driver: str, versions: tuple[int, int], chosen: str) -> None:
    """Each driver runs over IPv4 in one pair and over IPv6 in the other."""
    start_job(pair.guests, (driver, driver), WHOLE, config_of(NIC, versions[pair.second == NEWEST]))
    first, _second = finish_job(pair.guests)
    assert chosen in first.log
    if driver in ("auto", "tcp"):
        assert first.statistics["tx_records"] > 0 or pair.second == NEWEST
    assert_nothing_left(pair.guests)
