# SPDX-License-Identifier: Apache-2.0
"""The disks of guests that need no boot loader: the smallest Debian, each with one of Debian's kernels.

Zero-copy on virtio_net takes Linux 6.13 or later, so that kernel comes from Debian's backports; the oldest is
that of the oldest release which Debian's archive still has. No boot loader, no init system: qemu starts the
kernel, and process 1 is a script that keeps the agent running. Kept in .cache/vm under a name that the recipe
gives; the kernel within is the one that Debian had on the day of the build.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.vm.image import AGENT, run_tool, write_filesystem

SUITE = "trixie"
ARCHIVE = "http://deb.debian.org/debian"
NEWEST = f"{SUITE}-backports"  # suites of Debian that have a kernel
OLDEST = "bullseye"  # Linux 5.10
PACKAGES = ("initramfs-tools", "kmod", "iproute2", "ethtool", "bpftool", "procps")
MODULES = "virtio_pci virtio_blk ext4"  # what finds the disk; Debian's usual choice takes longer to unpack
HOOK = f"""\
cd "$1" && mkdir -p etc/initramfs-tools/conf.d usr/share/initramfs-tools/modules.d
echo MODULES=list >etc/initramfs-tools/conf.d/guest
printf '%s\\n' {MODULES} >usr/share/initramfs-tools/modules.d/guest
"""
DISK_BYTES = 1 << 30
CLOCK = "no_timer_check lpj=10000000 tsc=reliable"  # measure no clock: a busy host makes nonsense of it
ARGUMENTS = f"root=LABEL=root rw console=ttyS0,115200 net.ifnames=0 {CLOCK} init=/usr/local/sbin/guest"
GUEST = """\
#!/bin/sh
# Process 1: keeps the agent on the second serial line.
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
modprobe virtio_net
while :; do setsid agent </dev/ttyS1 >/dev/ttyS1 2>/dev/console; done
"""


class GuestImage(NamedTuple):
    """A disk and the kernel that boots it."""

    disk: Path
    direct: tuple[str, str, str]  # kernel, initrd, kernel arguments


def _apt_sources(kernel: str) -> list[str]:
    return [f"deb {ARCHIVE} {suite} main" for suite in (SUITE, kernel)]


def _package_names(kernel: str) -> list[str]:
    return [f"linux-image-cloud-amd64/{kernel}", *PACKAGES]


def _build_tree(folder: Path, kernel: str) -> None:
    tree = folder / "tree"
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_package_names(kernel))}"]
    argv += [f"--essential-hook={HOOK}"]
    run_tool([*argv, SUITE, str(tree), *_apt_sources(kernel)])
    for name, text in {"guest": GUEST, "agent": AGENT}.items():
        file = tree / "usr/local/sbin" / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((tree / "boot").glob(f"{name}-*")), folder / name)
    write_filesystem(tree, folder / "disk.img", DISK_BYTES)
    shutil.rmtree(tree)


def guest_image(cache: Path, kernel: str = NEWEST) -> GuestImage:
    """Return the image with the kernel of a suite of Debian, made now or before."""
    recipe = repr((_apt_sources(kernel), _package_names(kernel), HOOK, DISK_BYTES, GUEST, AGENT))
    done = cache / f"{SUITE}-{kernel}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if not done.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="vm-", dir=cache) as name:
            folder = Path(name) / "image"
            folder.mkdir()
            _build_tree(folder, kernel)
            folder.rename(done)
    return GuestImage(done / "disk.img", (str(done / "vmlinuz"), str(done / "initrd.img"), ARGUMENTS))
