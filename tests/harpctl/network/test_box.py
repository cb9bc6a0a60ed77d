# SPDX-License-Identifier: Apache-2.0
"""The plan's own commands, and the dead man's switch, for real in namespaces: each case of box.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.harpctl.network.box import CASES, NETWORKD

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
UNSHARE = ["unshare", "--net", "--mount-proc", "--pid", "--fork", "--kill-child"]
NEEDS = {
    "ifupdown_at_boot": ["ifup"],
    "networkd_at_boot": [NETWORKD],
    "netplan_at_boot": ["netplan", NETWORKD],
}


@pytest.mark.parametrize("case", CASES)
def test_in_a_box(case: str, tmp_path: Path, root: Path) -> None:
    for tool in ("unshare", "ping", *NEEDS.get(case, [])):
        if which(tool) is None:
            pytest.skip(f"needs the program {tool}")
    env = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    command = [*UNSHARE, sys.executable, "-m", "tests.harpctl.network.box", case, str(tmp_path / "root")]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
