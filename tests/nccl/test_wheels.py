# SPDX-License-Identifier: Apache-2.0
"""The releases that the other tests drive."""

from __future__ import annotations

from tests.nccl import wheels


def test_releases_cover_every_table() -> None:
    assert {release.table for release in wheels.RELEASES} == set(range(6, 13))
    assert wheels.RELEASES[-1] == wheels.NEWEST
    assert len({release.version for release in wheels.RELEASES}) == len(wheels.RELEASES)
