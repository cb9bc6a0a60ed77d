# SPDX-License-Identifier: Apache-2.0
"""Boots pairs of guests; when their tests have ended, their disks are as before and their network is gone.

They need qemu-system-x86_64, mmdebstrap and mke2fs (harp_setup installs them), 8 GiB of memory, /dev/net/tun
and, for the first run, Debian's archive. The machines reach nothing outside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.vm.guest_image import GuestImage, guest_image
from tests.vm.guests import MTU_MAX, Guest, Guests, shape_of
from tests.vm.image import run_tool, write_filesystem
from tests.vm.machine import Machine

MIB = 1 << 20
SPARE_BYTES = 64 * MIB


@pytest.fixture(scope="session")
def payload(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a disk with the plugin and harp-perf on it."""
    folder, size = tmp_path_factory.mktemp("payload"), SPARE_BYTES
    (folder / "tree").mkdir()
    for file in (plugin_file, plugin_file.parent / "harp-perf"):
        shutil.copy(file, folder / "tree" / file.name)
        size += file.stat().st_size // MIB * MIB
    write_filesystem(folder / "tree", folder / "disk.img", size, label="payload")
    return folder / "disk.img"


@contextmanager
def make_bridges(name: str) -> Iterator[str]:
    """Make a network namespace with the bridge for eth2 and an interface of several queues for each guest."""
    run_tool(["ip", "netns", "add", name])
    try:
        ip = ["ip", "-n", name]
        run_tool([*ip, "link", "add", "bridge", "up", "type", "bridge"])
        for rank in range(2):
            run_tool([*ip, "tuntap", "add", "dev", f"tap{rank}", "mode", "tap", "multi_queue"])
            run_tool([*ip, "link", "set", f"tap{rank}", "master", "bridge", "mtu", str(MTU_MAX), "up"])
        yield name
    finally:
        run_tool(["ip", "netns", "delete", name])


@contextmanager
def boot_guests(images: tuple[GuestImage, GuestImage], payload: Path, folder: Path) -> Iterator[Guests]:
    """Boot a guest of each image; a complaint of either kernel fails the test at the end."""
    with ExitStack() as stack:
        namespace = stack.enter_context(make_bridges(f"harp-vm-{os.getpid()}-{folder.name}"))

        def start(rank: int) -> Machine:
            form, console = shape_of(namespace, folder, rank), folder / f"console{rank}"
            image = images[rank]
            machine = Machine(image.disk, console, payload=payload, direct=image.direct, shape=form)
            return stack.enter_context(machine)

        first, second = start(0), start(1)
        both = Guest(first, 0), Guest(second, 1)
        print(*(guest.kernel for guest in both))
        yield both
        for guest in both:
            complaints = guest.machine.execute("dmesg | grep -E 'WARNING|BUG|Oops|Call Trace'")
            assert complaints.code, complaints.text


@pytest.fixture(scope="session")
def guests(root: Path, payload: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guests]:
    """Provide two guests with the newest kernel, for all files that use them."""
    image = guest_image(root / ".cache" / "vm")
    with boot_guests((image, image), payload, tmp_path_factory.mktemp("guests")) as both:
        yield both
