# SPDX-License-Identifier: Apache-2.0
"""Provides the attacker's program, and how long and large attacks are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.hostile.flood import compile_flood


@dataclasses.dataclass(frozen=True)
class Scale:
    """Duration and size of attacks."""

    seconds: float
    held: int  # connections at once of one attacker
    attackers: int  # where several are to hold more
    judges_rate: bool


@pytest.fixture(scope="session")
def flood_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled flood.c."""
    return compile_flood(tmp_path_factory.mktemp("hostile") / "flood")


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Scale:
    """Provide the scale: with --hostile the large one."""
    if request.config.getoption("--hostile"):
        return Scale(4.0, 16384, 4, judges_rate=True)
    return Scale(1.0, 4096, 1, judges_rate=False)
