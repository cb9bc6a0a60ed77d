# SPDX-License-Identifier: Apache-2.0
"""The whole life of a prepared host, in a virtual machine that boots through the real GRUB.

Set up from a pipe by the self-contained file, rebooted, validated; rolled back, rebooted, as it was before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.image import base_image, write_filesystem
from tests.vm.machine import Machine

pytestmark = [pytest.mark.vm, pytest.mark.timeout(7200)]

PAGES = 3
TIMEOUT_S = 1200  # the time of what runs Python in there, on a busy machine
OPTIONS = f"--gpus 1 --hugepages {PAGES} --enis eth1 --address eth1=10.7.1.11/24"
PIPE = "mount -o ro /dev/vdb /mnt && cat /mnt/harp_setup.sh | bash"
SUCCESS = "Set up HARP successfully"
CONF = "/usr/local/tfabric/tools/config/ztcp0.conf"
TOOL = "usr/local/tfabric/tools/harpctl"  # the unpacked tool, which rollback leaves
# Names, modes, owners, links and bytes of all that a setup may touch, but for what the running system writes.
INVENTORY = f"""
cd /
find etc boot usr/local usr/lib/systemd usr/lib/x86_64-linux-gnu \
  \\( -path {TOOL} -o -path etc/resolv.conf \\) -prune \
  -o -type l -printf '%M %p -> %l\\n' -o -type d -printf '%M %U %G %p\\n' \
  -o -printf '%M %U %G %s %p\\n' | sort
find etc boot usr/local \\( -path {TOOL} -o -path boot/grub/grubenv \\) -prune -o -type f -print0 |
  sort -z | xargs -0 sha256sum
"""


@pytest.fixture(scope="module")
def payload(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a disk with the self-contained file on it."""
    folder = tmp_path_factory.mktemp("payload")
    (folder / "tree").mkdir()
    argv = [sys.executable, "-m", "dist.make", "--out", str(folder / "tree" / "harp_setup.sh")]
    subprocess.run(argv, cwd=root, check=True)
    write_filesystem(folder / "tree", folder / "disk.img", 64 << 20)
    return folder / "disk.img"


@pytest.fixture
def machine(root: Path, payload: Path, tmp_path: Path) -> Iterator[Machine]:
    disk = base_image(root / ".cache" / "vm", tmp_path / "console-of-image")
    with Machine(disk, tmp_path / "console", payload=payload) as running:
        yield running


def read_meminfo(machine: Machine) -> dict[str, int]:
    lines = machine.run("cat /proc/meminfo").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def differing_lines(before: str, after: str) -> list[str]:
    old, new = set(before.splitlines()), set(after.splitlines())
    return [f"- {line}" for line in sorted(old - new)] + [f"+ {line}" for line in sorted(new - old)]


def test_a_host_is_set_up_rebooted_and_rolled_back(machine: Machine) -> None:
    before, cmdline = machine.run(INVENTORY), machine.run("cat /proc/cmdline")
    assert read_meminfo(machine)["HugePages_Total"] == 0

    output = machine.run(f"{PIPE} -s -- {OPTIONS}", timeout_s=TIMEOUT_S)
    assert SUCCESS in output.splitlines(), output
    assert "eboot" in output, output
    after = machine.run(INVENTORY)
    assert any(CONF[1:] in line for line in differing_lines(before, after))
    conf = machine.run(f"cat {CONF}")

    again = json.loads(machine.run(f"harpctl setup {OPTIONS} --json 2>/dev/null", timeout_s=TIMEOUT_S))
    assert again["ok"], again
    assert not again["changed"], again
    assert differing_lines(after, machine.run(INVENTORY)) == []

    machine.reboot()
    memory = read_meminfo(machine)
    assert (memory["HugePages_Total"], memory["Hugepagesize"]) == (PAGES, 1 << 20)
    assert f"default_hugepagesz=1GB hugepagesz=1GB hugepages={PAGES}" in machine.run("cat /proc/cmdline")
    assert machine.run(f"cat {CONF}") == conf
    assert "hugetlbfs" in machine.run("grep ' /dev/hugepages ' /proc/mounts")
    assert "10.7.1.11/24" in machine.run("ip -br address show eth1")
    assert "from 10.7.1.11 lookup 7700" in machine.run("ip rule")
    for unit in ("harp.service", "harp-validate.service"):
        show = "systemctl show -P Result -P ExecMainStatus -P ActiveState"
        state = machine.execute(f"{show} {unit}; journalctl -u {unit}")
        assert state.text.split()[:3] == ["success", "0", "active"], state.text
    assert SUCCESS in machine.run(f"harpctl setup {OPTIONS} --yes", timeout_s=TIMEOUT_S)
    machine.run("harpctl install", timeout_s=TIMEOUT_S)
    machine.run("harpctl validate", timeout_s=TIMEOUT_S)

    machine.run("harpctl rollback --yes", timeout_s=TIMEOUT_S)
    machine.reboot()
    assert read_meminfo(machine)["HugePages_Total"] == 0
    assert machine.run("cat /proc/cmdline") == cmdline
    assert machine.execute("harpctl --version").code == 127, "the command is still there"
    machine.run(f"bash /{TOOL}/*/harp_setup.sh uninstall")
    assert differing_lines(before, machine.run(INVENTORY)) == []
