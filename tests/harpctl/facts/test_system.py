# SPDX-License-Identifier: Apache-2.0
"""The distribution, its family, the C library and containers, of real layouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from harpctl.facts.collect import collect_facts
from harpctl.facts.system import collect_system, family_of, find_container
from harpctl.host.host import Host
from tests.harpctl.machine import DEBIAN_DISTROS, DISTROS, RHEL_DISTROS, build_machine

EXPECTED = {  # id, version, glibc, kernel's beginning
    "ubuntu-18.04": ("ubuntu", "18.04", "2.27", "4.15."),
    "ubuntu-20.04": ("ubuntu", "20.04", "2.31", "5.4."),
    "ubuntu-22.04": ("ubuntu", "22.04", "2.35", "5.15."),
    "ubuntu-24.04": ("ubuntu", "24.04", "2.39", "6.8."),
    "debian-12": ("debian", "12", "2.36", "6.1."),
    "centos-7": ("centos", "7", "2.17", "3.10."),
    "rocky-8": ("rocky", "8.10", "2.28", "4.18."),
    "rocky-9": ("rocky", "9.5", "2.34", "5.14."),
    "tencentos-2.4": ("tencentos", "2.4", "2.17", "4.14."),
    "tencentos-3.1": ("tencentos", "3.1", "2.28", "5.4."),
    "tencentos-4": ("tencentos", "4.2", "2.38", "6.6."),
}


@pytest.mark.parametrize("distro", DISTROS)
def test_a_distribution_is_recognized_by_its_own_files(tmp_path: Path, distro: str) -> None:
    facts = collect_facts(Host(build_machine(tmp_path, distro)))
    system = facts.system
    assert (system.id, system.version, system.glibc) == EXPECTED[distro][:3]
    assert system.kernel.startswith(EXPECTED[distro][3])
    assert system.family == ("debian" if distro in DEBIAN_DISTROS else "rhel")
    assert (system.arch, system.init, system.container) == ("x86_64", "systemd", "")
    assert facts.unknown == ()


@pytest.mark.parametrize("distro", DISTROS)
def test_tools_are_found_where_the_distribution_has_them(tmp_path: Path, distro: str) -> None:
    tools = collect_facts(Host(build_machine(tmp_path, distro))).tools
    assert bool(tools["update-grub"]) == bool(tools["update-grub2"]) == (distro in DEBIAN_DISTROS)
    assert bool(tools["grub2-mkconfig"]) == bool(tools["grubby"]) == (distro in RHEL_DISTROS)
    assert bool(tools["netplan"]) == distro.startswith("ubuntu")
    assert bool(tools["nmcli"]) == (distro in {"rocky-8", "rocky-9", "tencentos-3.1", "tencentos-4"})
    assert tools["ip"] == ("/sbin/ip" if distro == "ubuntu-18.04" else "/usr/sbin/ip")
    assert tools["rpm-ostree"] == ""


@pytest.mark.parametrize(
    ("release", "family"),
    [
        ({"ID": "tlinux", "ID_LIKE": "rhel fedora centos"}, "rhel"),
        ({"ID": "tencentos"}, "rhel"),
        ({"ID": "TencentOS"}, "rhel"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "debian"),
        ({"ID": "ours", "ID_LIKE": "centos"}, "rhel"),
        ({"ID": "debian", "ID_LIKE": "rhel"}, "debian"),
        ({"ID": "arch"}, ""),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}, ""),
        ({}, ""),
    ],
)
def test_family(release: dict[str, str], family: str) -> None:
    assert family_of(release) == family


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('ID=arch\nNAME="Arch Linux"\n', "arch belongs neither"),
        ("ID='nixos'\n", "nixos belongs neither"),
        ('ID="open\n', "open belongs neither"),
        ("", "neither /etc/os-release nor"),
    ],
)
def test_an_unknown_distribution_is_no_error(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(text)
    unknown: list[str] = []
    assert collect_system(Host(tmp_path), unknown).family == ""
    assert len(unknown) == 1
    assert word in unknown[0]


def test_glibc_is_read_from_the_library_before_ldd(tmp_path: Path) -> None:
    build_machine(tmp_path, "rocky-9")
    library = tmp_path / "usr/lib64/libc.so.6"
    library.write_bytes(b"\x7fELF\0GNU C Library (GNU libc) stable release version 2.99.\nCopyright\0")
    assert collect_system(Host(tmp_path), []).glibc == "2.99"


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "engine=podman\n", "podman"),
        ("run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("var/run/secrets/kubernetes.io/serviceaccount/token", "x", "kubernetes"),
        ("proc/1/environ", "HOME=/\0container=lxc\0", "lxc"),
        ("proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n", "kubernetes"),
        ("proc/self/cgroup", "5:hugetlb:/docker/0123\n", "docker"),
        ("proc/self/cgroup", "0::/system.slice/docker-0123abc.scope\n", "docker"),
        ("proc/self/cgroup", "0::/system.slice/docker.service\n", ""),
        ("proc/self/cgroup", "0::/user.slice\n", ""),
        ("run/systemd/container", "", ""),
    ],
)
def test_a_container_is_known_by_its_marks(tmp_path: Path, path: str, text: str, name: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    assert find_container(Host(tmp_path)) == name
