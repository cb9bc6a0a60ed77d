# SPDX-License-Identifier: Apache-2.0
"""The disk of the virtual machine: a small Debian out of Debian's packages, with the real GRUB on it.

Made once and kept in .cache/vm under a name made from its recipe. The partition is filled without loop
devices; GRUB is then installed by the machine itself, on a first boot that qemu starts the kernel of.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from tests.vm.machine import Machine

SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "systemd-resolved", "udev", "dbus", "kmod", "procps"),
    *("linux-image-cloud-amd64", "grub-pc", "initramfs-tools"),
    *("iproute2", "ethtool", "netplan.io", "iputils-ping"),
)
DISK_BYTES = 2 << 30
PARTITION_OFFSET = 1 << 20
SECTOR_BYTES = 512
BUILD_TIMEOUT_S = 900

AGENT = """\
#!/bin/sh
# Runs what comes over the second serial line: one line each, a token and a script in base64.
stty raw -echo
printf '\\nREADY %s\\n' "$(cat /proc/sys/kernel/random/boot_id)"
while read -r token script; do
  printf '%s' "$script" | base64 -d >/run/agent.sh
  sh /run/agent.sh </dev/null >/run/agent.out 2>&1
  printf '\\nBEGIN %s %s\\n' "$token" "$?"
  base64 -w 0 /run/agent.out
  printf '\\nEND %s\\n' "$token"
done
"""
AGENT_UNIT = """\
[Unit]
Description=Runs the test's scripts
After=multi-user.target

[Service]
ExecStart=/usr/local/sbin/agent
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/ttyS1
Restart=always

[Install]
WantedBy=default.target
"""
GRUB_DEFAULTS = """\
# Written by the installer of the image.
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR="Debian"
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX='net.ifnames=0 console=tty0 console=ttyS0,115200 no_timer_check'
GRUB_TERMINAL=serial
GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
"""
FINISH = "grub-install /dev/vda && update-grub && systemctl mask getty@tty1 && sync"
FILES = {  # path: text, mode
    "etc/hostname": ("gpu1\n", 0o644),
    "etc/hosts": ("127.0.0.1 localhost gpu1\n", 0o644),
    "etc/fstab": ("LABEL=root / ext4 errors=remount-ro 0 1\n", 0o644),
    "etc/netplan/50-cloud-init.yaml": (
        "network:\n  version: 2\n  ethernets:\n    eth0:\n      dhcp4: true\n",
        0o600,
    ),
    "etc/default/grub": (GRUB_DEFAULTS, 0o644),
    "etc/systemd/system/agent.service": (AGENT_UNIT, 0o644),
    "usr/local/sbin/agent": (AGENT, 0o755),
}


def run_tool(argv: list[str]) -> None:
    """Run a tool of the host to its end; its output is in the error."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{argv[0]} failed:\n{(done.stdout + done.stderr)[-3000:]}"


def _write_files(tree: Path) -> None:
    for name, (text, mode) in FILES.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
    wanted = tree / "etc/systemd/system/default.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "agent.service").symlink_to("/etc/systemd/system/agent.service")
    networkd = tree / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    networkd.parent.mkdir(exist_ok=True)
    if not networkd.is_symlink():
        networkd.symlink_to("/lib/systemd/system/systemd-networkd.service")


def write_filesystem(tree: Path, disk: Path, size_bytes: int, offset_bytes: int = 0, label: str = "root") -> None:
    """Make an ext4 file system of a tree at an offset of a new disk image."""
    with disk.open("wb") as file:
        file.truncate(size_bytes)
    blocks = (size_bytes - offset_bytes) // 4096
    features = "^metadata_csum_seed,^orphan_file"  # newer than Debian 12's GRUB
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", features, "-L", label]
    run_tool([*argv, "-E", f"offset={offset_bytes}", "-d", str(tree), str(disk), str(blocks)])


def _write_partition_table(disk: Path) -> None:
    """Write an MBR with one bootable Linux partition; its gap before is where GRUB will put itself."""
    first = PARTITION_OFFSET // SECTOR_BYTES
    count = DISK_BYTES // SECTOR_BYTES - first
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", first, count)
    with disk.open("r+b") as file:
        file.seek(440)
        file.write(b"HARP\0\0" + entry + b"\0" * 48 + b"\x55\xaa")


def _build_disk(work: Path, console: Path) -> Path:
    tree, disk = work / "tree", work / "disk.img"
    run_tool(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree)])
    _write_files(tree)
    write_filesystem(tree, disk, DISK_BYTES, PARTITION_OFFSET)
    _write_partition_table(disk)
    kernel = next((tree / "boot").glob("vmlinuz-*"))
    initrd = next((tree / "boot").glob("initrd.img-*"))
    direct = (str(kernel), str(initrd), "root=LABEL=root console=ttyS0,115200 net.ifnames=0 no_timer_check")
    with Machine(disk, console, keep=True, direct=direct) as machine:
        machine.run(FINISH, timeout_s=300)
        machine.power_off()
    return disk


def base_image(cache: Path, console: Path) -> Path:
    """Return the disk image, made now or before."""
    recipe = repr((SUITE, PACKAGES, DISK_BYTES, FILES, FINISH))
    done = cache / f"{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.img"
    if not done.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="vm-", dir=cache) as name:
            disk = _build_disk(Path(name), console)
            shutil.move(disk, done)
    return done
