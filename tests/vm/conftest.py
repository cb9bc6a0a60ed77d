# SPDX-License-Identifier: Apache-2.0
"""Boots pairs of guests, once for each file of tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.vm.guest_image import GuestImage, guest_image
from tests.vm.guests import MTU_MAX, Guest, Guests, shape
from tests.vm.image import run_tool, write_filesystem
from tests.vm.machine import Machine

MIB = 1 << 20
SPARE_BYTES = 64 * MIB


def payload_of(files: Sequence[Path], folder: Path) -> Path:
    """Make a disk with these files on it."""
    (folder / "tree").mkdir()
    for file in files:
        shutil.copy(file, folder / "tree" / file.name)
    size = SPARE_BYTES + sum(file.stat().st_size for file in files) // MIB * MIB
    write_filesystem(folder / "tree", folder / "disk.img", size, label="payload")
    return folder / "disk.img"


@pytest.fixture(scope="module")
def payload(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk with the plugin and harp-perf on it."""
    files = (plugin_file, plugin_file.parent / "harp-perf")
    return payload_of(files, tmp_path_factory.mktemp("payload"))


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace with the bridge for eth2 and an interface of several queues for each guest."""
    name = f"harp-vm-{os.getpid()}"
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
def booted(
    images: tuple[GuestImage, GuestImage], payload: Path, namespace: str, folder: Path
) -> Iterator[Guests]:
    """Boot a guest of each image; whose kernel complains fails the test at the end."""
    with ExitStack() as stack:

        def boot(rank: int) -> Guest:
            form, console = shape(namespace, folder, rank), folder / f"console{rank}"
            image = images[rank]
            machine = Machine(image.disk, console, payload=payload, direct=image.direct, shape=form)
            return Guest(stack.enter_context(machine), rank)

        both = boot(0), boot(1)
        print(*(guest.kernel for guest in both))
        yield both
        for guest in both:
            complaints = guest.machine.execute("dmesg | grep -E 'WARNING|BUG|Oops|Call Trace'")
            assert complaints.code, complaints.text


@pytest.fixture(scope="module")
def guests(
    root: Path, payload: Path, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guests]:
    """Two guests with the newest kernel."""
    image = guest_image(root / ".cache" / "vm")
    with booted((image, image), payload, namespace, tmp_path_factory.mktemp("guests")) as both:
        yield both
