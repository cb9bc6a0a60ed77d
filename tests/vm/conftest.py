# SPDX-License-Identifier: Apache-2.0
"""Boots the guests of the AF_XDP tests, once for each file of tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.vm.guests import MTU_MAX, Guest, Guests, shape
from tests.vm.image import run_tool, write_filesystem
from tests.vm.machine import Machine
from tests.vm.xdp_image import guest_image

PAYLOAD_BYTES = 64 << 20


@pytest.fixture(scope="module")
def payload(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk with the plugin and harp-perf on it."""
    folder = tmp_path_factory.mktemp("payload")
    (folder / "tree").mkdir()
    for file in (plugin_file, plugin_file.parent / "harp-perf"):
        shutil.copy(file, folder / "tree" / file.name)
    write_filesystem(folder / "tree", folder / "disk.img", PAYLOAD_BYTES, label="payload")
    return folder / "disk.img"


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


@pytest.fixture(scope="module")
def guests(
    root: Path, payload: Path, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guests]:
    image = guest_image(root / ".cache" / "vm")
    folder = tmp_path_factory.mktemp("guests")
    with ExitStack() as stack:

        def boot(rank: int) -> Guest:
            form, console = shape(namespace, folder, rank), folder / f"console{rank}"
            machine = Machine(image.disk, console, payload=payload, direct=image.direct, shape=form)
            return Guest(stack.enter_context(machine), rank)

        both = boot(0), boot(1)
        print(both[0].machine.run("uname -r"))
        yield both
        for guest in both:
            complaints = guest.machine.ask("dmesg | grep -E 'WARNING|BUG|Oops|Call Trace'")
            assert complaints.code, complaints.text
