# SPDX-License-Identifier: Apache-2.0
"""The plugin for aarch64 through its exported tables: a Python for aarch64 runs the conformance suite.

Of the suite the oldest and the newest table, between which the others lie, and the files whose cases mostly
need no further processes: each Python takes seconds to start here.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import native
from tests.aarch64.machine import Machine, build_targets

pytestmark = [pytest.mark.aarch64, pytest.mark.timeout(native.BUILD_TIMEOUT_S + 3000)]

FILES = ("test_transfer.py", "test_small_sends.py", "test_streams.py", "test_connect.py")
VERSIONS = "v4 or v12"
CASES_MIN = 30
TIMEOUT_S = 3000


def test_through_the_tables(arm: Machine, root: Path) -> None:
    library = build_targets("all") / "libnccl-net.so"
    words = [str(arm.python), "-B", "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-q", "-k", VERSIONS]
    done = subprocess.run(
        [*words, *(f"tests/conformance/{name}" for name in FILES)],
        cwd=root,
        env={**os.environ, "CONFORMANCE_PLUGIN": str(library)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-native.TAIL_CHARS :]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= CASES_MIN
