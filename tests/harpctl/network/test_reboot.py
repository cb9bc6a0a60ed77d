# SPDX-License-Identifier: Apache-2.0
"""What setup did holds after a boot with each network manager, and nothing of it after a rollback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.harpctl.network.reboot import MANAGERS, SYSTEMD

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
NETWORKD = ["/lib/systemd/systemd-networkd"]
NETWORKMANAGER = ["NetworkManager", "nmcli", "dbus-daemon"]
NEEDS = {
    "networkd": NETWORKD,
    "netplan": ["netplan", *NETWORKD],
    "netplan-NetworkManager": ["netplan", *NETWORKMANAGER],
    "NetworkManager": NETWORKMANAGER,
    "Rocky": NETWORKMANAGER,
    "ifupdown": ["ifup"],
}


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_host_is_right_after_its_reboot(manager: str, tmp_path: Path, root: Path) -> None:
    for tool in (SYSTEMD, "unshare", *NEEDS[manager]):
        if which(tool) is None:
            pytest.skip(f"needs the program {tool}")
    env = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-m", "tests.harpctl.network.reboot", manager, str(tmp_path)],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
