# SPDX-License-Identifier: Apache-2.0
"""Prepares what runs programs for aarch64, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aarch64 import machine
from tests.aarch64.machine import Machine


@pytest.fixture(scope="session")
def arm(root: Path) -> Iterator[Machine]:
    """Provide programs for aarch64, with their compiler in PATH."""
    if reason := machine.why_missing():
        pytest.skip(reason)
    try:
        made = machine.prepare_machine(root / ".cache" / "aarch64")
    except OSError as error:
        pytest.skip(f"what aarch64's programs need can't be fetched: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield made
