# SPDX-License-Identifier: Apache-2.0
"""Limits: locked memory, hugepages of cgroup v1 and v2, capabilities."""

from __future__ import annotations

from pathlib import Path

import pytest

from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Limits
from harpctl.host.host import Host
from harpctl.units import GIB, MIB
from tests.harpctl.machine import build_machine

V1_POD = "sys/fs/cgroup/hugetlb/kubepods/pod1"
V2_POD = "sys/fs/cgroup/kubepods.slice/pod1.slice"


def limits_of(tree: Path) -> Limits:
    return collect_facts(Host(tree)).limits


@pytest.mark.parametrize("distro", ["centos-7", "rocky-9"])
def test_no_limit_in_both_cgroup_versions(tmp_path: Path, distro: str) -> None:
    limits = limits_of(build_machine(tmp_path, distro, "gpu1"))
    assert [(g.size, g.limit, g.usage) for g in limits.hugetlb] == [(2 * MIB, -1, 0), (GIB, -1, 0)]
    assert (limits.memlock, limits.nofile) == (65536, 1024)
    assert {"cap_net_admin", "cap_bpf", "cap_checkpoint_restore"} <= set(limits.capabilities or ())


def test_a_pods_limit_in_cgroup_v1(tmp_path: Path) -> None:
    tree = build_machine(tmp_path, "rocky-8", "gpu1")
    (tree / V1_POD).mkdir(parents=True)
    (tree / V1_POD / "hugetlb.1GB.limit_in_bytes").write_text(f"{50 * GIB}\n")
    (tree / V1_POD / "hugetlb.1GB.usage_in_bytes").write_text(f"{5 * GIB}\n")
    (tree / "proc/self/cgroup").write_text("4:memory:/kubepods/pod1\n3:cpu,hugetlb:/kubepods/pod1\n")
    assert [(g.limit, g.usage) for g in limits_of(tree).hugetlb if g.size == GIB] == [(50 * GIB, 5 * GIB)]


@pytest.mark.parametrize(
    ("above", "own", "limit"),
    [
        ("max", str(50 * GIB), 50 * GIB),
        (str(50 * GIB), "max", 50 * GIB),
        (str(20 * GIB), str(50 * GIB), 20 * GIB),
        (str(50 * GIB), "0", 0),
    ],
)
def test_the_tightest_limit_of_cgroup_v2_counts(tmp_path: Path, above: str, own: str, limit: int) -> None:
    tree = build_machine(tmp_path, "rocky-9", "gpu1")
    (tree / V2_POD).mkdir(parents=True)
    (tree / V2_POD / "hugetlb.1GB.max").write_text(f"{own}\n")
    (tree / V2_POD).parent.joinpath("hugetlb.1GB.max").write_text(f"{above}\n")
    (tree / "proc/self/cgroup").write_text("0::/kubepods.slice/pod1.slice\n")
    assert [g.limit for g in limits_of(tree).hugetlb if g.size == GIB] == [limit]


def test_in_a_cgroup_namespace_the_mount_is_our_own_group(tmp_path: Path) -> None:
    tree = build_machine(tmp_path, "rocky-9", "gpu1")
    (tree / "proc/self/cgroup").write_text("0::/\n")
    (tree / "sys/fs/cgroup/hugetlb.1GB.max").write_text(f"{10 * GIB}\n")
    assert [g.limit for g in limits_of(tree).hugetlb] == [10 * GIB]


def test_unlimited_memory_and_few_capabilities(tmp_path: Path) -> None:
    tree = build_machine(tmp_path, "rocky-9", "gpu1")
    (tree / "proc/self/limits").write_text(
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
    )
    (tree / "proc/self/status").write_text("Name:\tx\nCapEff:\t0000000000005000\n")
    limits = limits_of(tree)
    assert limits.memlock == -1
    assert limits.capabilities == ("cap_net_admin", "cap_ipc_lock")


def test_without_proc_self_they_are_unknown(tmp_path: Path) -> None:
    tree = build_machine(tmp_path, "rocky-9", "gpu1")
    (tree / "proc/self/status").unlink()
    facts = collect_facts(Host(tree))
    assert facts.limits.capabilities is None
    assert any("Limits and capabilities are unknown" in line for line in facts.unknown)
