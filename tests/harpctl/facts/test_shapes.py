# SPDX-License-Identifier: Apache-2.0
"""Memory, processors, GPUs and ENIs of machines of several shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Facts, Overrides
from harpctl.host.host import Host
from harpctl.units import GIB, MIB
from tests.harpctl.machine import SHAPES, Shape, build_machine, with_shape


def facts_of(folder: Path, shape: str | Shape, overrides: Overrides | None = None) -> Facts:
    return collect_facts(Host(build_machine(folder, "ubuntu-22.04", shape)), overrides or Overrides())


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_are_those_of_the_shape(tmp_path: Path, shape: str) -> None:
    facts, what = facts_of(tmp_path, shape), SHAPES[shape]
    assert len(facts.gpus) == what.gpus
    assert [eni.name for eni in facts.enis] == [f"eth{n}" for n in range(what.enis + 1)]
    assert len(facts.cpus) == what.cpus
    assert len(facts.memory.nodes) == what.nodes
    assert facts.memory.total == what.memory_gib * GIB
    assert sum(node.memory for node in facts.memory.nodes) == facts.memory.total
    assert facts.unknown == ()


def test_gpus_and_enis_share_switches_and_nodes(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, "gpu8")
    assert [gpu.index for gpu in facts.gpus] == list(range(8))
    assert [gpu.node for gpu in facts.gpus] == [0] * 4 + [1] * 4
    assert [gpu.pci for gpu in facts.gpus] == sorted(gpu.pci for gpu in facts.gpus)
    for number, gpu in enumerate(facts.gpus):
        eni = facts.enis[number + 1]
        assert eni.node == gpu.node
        assert eni.path[:3] == gpu.path[:3]
        assert eni.path[0].startswith("pci0000:")
    assert (facts.gpus[0].vendor, facts.gpus[0].device) == ("10de", "20b0")


def test_other_devices_are_no_gpus(tmp_path: Path) -> None:
    build_machine(tmp_path, "ubuntu-22.04", "gpu2")
    devices = tmp_path / "sys/bus/pci/devices"
    names = sorted(path.name for path in devices.iterdir() if (path / "vendor").read_text() == "0x10de\n")
    (devices / names[0] / "class").write_text("0x040300\n")  # the sound of a graphics card
    (devices / names[1] / "vendor").write_text("0x1002\n")
    facts = collect_facts(Host(tmp_path))
    assert facts.gpus == ()


def test_processors_pair_up_and_belong_to_nodes(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, "gpu8")
    assert facts.cpus[50].core == (2, 50)
    assert [facts.cpus[cpu].node for cpu in (0, 23, 24, 47, 48, 95)] == [0, 0, 1, 1, 0, 1]


def test_a_processor_that_is_offline_does_not_count(tmp_path: Path) -> None:
    build_machine(tmp_path, "ubuntu-22.04", "gpu1")
    (tmp_path / "sys/devices/system/cpu/cpu3/online").write_text("0\n")
    assert 3 not in {cpu.id for cpu in collect_facts(Host(tmp_path)).cpus}


def test_hugepages_of_host_and_nodes(tmp_path: Path) -> None:
    memory = facts_of(tmp_path, "prepared").memory
    assert [(p.size, p.total, p.free) for p in memory.hugepages] == [(2 * MIB, 0, 0), (GIB, 50, 50)]
    assert [node.hugepages[1].total for node in memory.nodes] == [25, 25]
    assert (memory.default_page, memory.has_1g) == (GIB, True)
    assert [(m.path, m.page_size, m.is_writable) for m in memory.mounts] == [("/dev/hugepages", GIB, True)]


@pytest.mark.parametrize(
    ("options", "size", "writable"),
    [
        ("rw,relatime", 2 * MIB, True),
        ("rw,relatime,pagesize=1G", GIB, True),
        ("ro,pagesize=1024M", GIB, False),
        ("rw,pagesize=2048K", 2 * MIB, True),
    ],
)
def test_a_mount_without_page_size_has_the_default(
    tmp_path: Path, options: str, size: int, writable: bool
) -> None:
    build_machine(tmp_path, "ubuntu-22.04", "gpu1")
    (tmp_path / "proc/mounts").write_text(f"hugetlbfs /mnt/a\\040b hugetlbfs {options} 0 0\n")
    mount = collect_facts(Host(tmp_path)).memory.mounts[0]
    assert (mount.path, mount.page_size, mount.is_writable) == ("/mnt/a b", size, writable)


def test_a_processor_without_1g_pages(tmp_path: Path) -> None:
    assert not facts_of(tmp_path, with_shape("gpu1", has_1g=False)).memory.has_1g


def test_what_is_given_goes_before_what_the_tree_shows(tmp_path: Path) -> None:
    given = Overrides(
        gpus=4,
        memory=64 * GIB,
        enis=("eth1", "eth20"),
        addresses={"eth5": "10.9.5.1/24", "eth20": "10.9.20.1/24"},
        gateways={"eth20": "10.9.20.254"},
        macs={"eth20": "52:54:00:00:01:00"},
    )
    facts = facts_of(tmp_path, "gpu8", given)
    assert facts.memory.total == 64 * GIB
    assert len(facts.gpus) == 8
    assert [eni.name for eni in facts.enis if eni.name in {"eth1", "eth20"}] == ["eth20", "eth1"]
    eth5, eth20 = facts.find_eni("eth5"), facts.find_eni("eth20")
    assert eth5 is not None
    assert eth20 is not None
    assert eth5.addresses == ("10.9.5.1/24",)
    assert (eth20.addresses, eth20.gateway) == (("10.9.20.1/24",), "10.9.20.254")
    assert eth20.mac == "52:54:00:00:01:00"


def test_conf_files_are_listed(tmp_path: Path) -> None:
    build_machine(tmp_path, "ubuntu-22.04", "gpu1")
    folder = tmp_path / "usr/local/tfabric/tools/config"
    folder.mkdir(parents=True)
    for name in ("ztcp1.conf", "ztcp0.conf", "ztcp0.conf.bak", "other.conf"):
        (folder / name).touch()
    base = "/usr/local/tfabric/tools/config"
    assert collect_facts(Host(tmp_path)).conf_files == (f"{base}/ztcp0.conf", f"{base}/ztcp1.conf")
