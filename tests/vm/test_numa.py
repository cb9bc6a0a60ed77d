# SPDX-License-Identifier: Apache-2.0
"""A machine with two NUMA nodes: the memory of each engine is really on the node of its core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.guest_image import guest_image
from tests.vm.guests import MEMORY_MIB
from tests.vm.machine import Machine, Shape

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

NODES = 2
CONF = "[eni]\ninterface = lo\n[engine]\ncores = 0-1\n[memory]\npage_size = 4K\n"
JOB = "--nranks 2 --log info --mode bidir --sizes 64K --iters 100000000 --rendezvous 127.0.0.1:20500"
MOVING = "grep -q 'connected to' /run/log0"
PLACED = re.compile(r" prefer[^:]*:(\d+) (.*)")
PAGES = re.compile(r"\bN(\d+)=(\d+)")
PAGES_MIN = 1024  # an engine's memory; what else a node allocates is smaller


@pytest.fixture(scope="module")
def machine(root: Path, payload: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    image = guest_image(root / ".cache" / "vm")
    console = tmp_path_factory.mktemp("numa") / "console"
    shape = Shape(MEMORY_MIB, NODES, ())
    with Machine(image.disk, console, payload=payload, direct=image.direct, shape=shape) as booted:
        yield booted


def test_memory_is_on_the_node_of_the_core(machine: Machine) -> None:
    """Each process has memory on both nodes, for the engine of either core."""
    cores = machine.run("ls -d /sys/devices/system/cpu/cpu[01]/node[0-9]")
    assert re.findall(r"cpu(\d)/node(\d)", cores) == [("0", "0"), ("1", "1")]
    machine.run("mount -o ro /dev/vdb /mnt; ip link set lo up; mkdir -p /run/conf")
    machine.run(f"cat >/run/conf/ztcp0.conf <<'END'\n{CONF}END")
    for rank in range(2):
        machine.run(
            f"(HARP_CONF_DIR=/run/conf /mnt/harp-perf --plugin /mnt/libnccl-net.so {JOB} --rank {rank} "
            f"</dev/null >/dev/null 2>/run/log{rank} & echo $! >/run/pid{rank})"
        )
    machine.run(f"for i in $(seq 600); do {MOVING} && exit 0; sleep 0.2; done; cat /run/log0; exit 1", 240)
    for rank in range(2):
        text = machine.run(f"cat /proc/$(cat /run/pid{rank})/numa_maps")
        found = {}
        for line in text.splitlines():
            match = PLACED.search(line)
            pages = {int(node): int(count) for node, count in PAGES.findall(line)}
            if match and sum(pages.values()) >= PAGES_MIN:
                found[int(match[1])] = set(pages)
        assert found == {0: {0}, 1: {1}}, text
