# SPDX-License-Identifier: Apache-2.0
"""All that setup did holds after a boot with each network manager, and nothing of it after a rollback.

Where this machine lacks a manager's programs, --vm runs it in the files of a Debian, which is fetched once.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.harpctl.network.reboot import MANAGERS, SYSTEMD

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
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
SUITE = "bookworm"
PACKAGES = (
    *("systemd", "udev", "dbus", "network-manager", "netplan.io", "ifupdown"),
    *("iproute2", "ethtool", "kmod", "nftables", "procps", "python3"),
)


def debian(root: Path) -> Path:
    """Return the files of a Debian with all managers; skip where they can't be had."""
    if which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap")
    if Path(sys.base_prefix) == Path("/usr"):
        pytest.skip("needs a Python of its own: the system's would hide that Debian's programs")
    tree = root / ".cache" / "vm" / f"managers-{SUITE}"
    tree.parent.mkdir(parents=True, exist_ok=True)
    with (tree.parent / "managers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.is_dir():
            new = tree.with_suffix(".new")
            subprocess.run(["rm", "-rf", new], check=True)
            words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
            subprocess.run([*words, SUITE, new], check=True)
            new.rename(tree)
    return tree


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_host_is_right_after_its_reboot(
    manager: str, tmp_path: Path, root: Path, plugin_file: Path, request: pytest.FixtureRequest
) -> None:
    del plugin_file  # what harpctl installs
    lower = Path("/")
    for tool in (SYSTEMD, "unshare", "ethtool", *NEEDS[manager]):
        if which(tool) is None:
            if tool == "unshare" or not request.config.getoption("--vm"):
                pytest.skip(f"needs the program {tool}, or --vm (fetches a Debian once)")
            lower = debian(root)
    words = ["-m", "tests.harpctl.network.reboot", manager, str(tmp_path), str(lower)]
    env = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, *words],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
