# SPDX-License-Identifier: Apache-2.0
"""Provides the program of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.many.build import compile_program


@pytest.fixture(scope="session")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled tests/many/rank.c."""
    return compile_program("rank.c", tmp_path_factory.mktemp("many") / "rank", "-rdynamic")


@pytest.fixture(scope="session")
def defect_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled tests/many/defect.c."""
    return compile_program("defect.c", tmp_path_factory.mktemp("many") / "defect.so", "-shared", "-fPIC")
