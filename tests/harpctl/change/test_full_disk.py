# SPDX-License-Identifier: Apache-2.0
"""A full and a read-only disk, for real: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting needs root")
def test_full_and_read_only_disks(tmp_path: Path) -> None:
    argv = ["unshare", "--mount", "--propagation", "private"]
    argv += [sys.executable, "-m", "tests.harpctl.change.full_disk", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
