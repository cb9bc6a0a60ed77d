# SPDX-License-Identifier: Apache-2.0
"""The healthy host of each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harpctl.doctor.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "host")
