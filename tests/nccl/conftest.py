# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: harp-nccl, NCCL releases, hosts, the plugin under all its names."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harpctl.errors import HarpError
from harplab.bench.nccl_wheel import fetch_nccl as fetch_wheel
from harplab.bench.nccl_wheel import wheel_of
from harplab.bench.options import find_program
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from harplab.perf.baseline import cache_dir
from tests.nccl import box, wheels


@pytest.fixture(scope="session")
def program() -> Path:
    """Provide harp-nccl, as `./harp_setup build` leaves it."""
    if platform.machine() != "x86_64":
        pytest.skip("harp-nccl is for x86-64")
    return find_program(None, "harp-nccl")


@pytest.fixture(scope="session")
def fetch() -> Callable[[wheels.Release], Path]:
    """Provide a release's library, or skip with the reason."""
    failed: dict[wheels.Release, str] = {}  # so that each is tried once

    def give(release: wheels.Release) -> Path:
        if release in failed:
            pytest.skip(failed[release])
        try:
            if release == wheels.OLDEST:
                return wheels.fetch_oldest(cache_dir())
            return fetch_wheel(wheel_of(release.version), cache_dir())
        except HarpError as error:
            failed[release] = str(error)
            pytest.skip(str(error))

    return give


def _build_lab(hosts: int) -> Iterator[tuple[str, ...]]:
    with Lab(LabSpec(hosts=hosts)) as lab:
        yield tuple(lab.hosts)


@pytest.fixture(scope="session")
def two_hosts() -> Iterator[tuple[str, ...]]:
    """Provide two namespaces, joined by one ENI."""
    yield from _build_lab(2)


@pytest.fixture(scope="session")
def four_hosts() -> Iterator[tuple[str, ...]]:
    """Provide four namespaces on one bridge."""
    yield from _build_lab(4)


MakeBox = Callable[..., box.Box]


@pytest.fixture
def make_box(
    request: pytest.FixtureRequest,
    program: Path,
    fetch: Callable[[wheels.Release], Path],
) -> MakeBox:
    """Make harp-nccl ready with a release, over that many hosts, a lab, or one of the test's own."""

    def make(hosts: int | Lab | LabSpec = 2, release: wheels.Release = wheels.NEWEST) -> box.Box:
        library = fetch(release)
        if isinstance(hosts, Lab):
            names = tuple(hosts.hosts)
        elif isinstance(hosts, LabSpec):
            names = tuple(request.getfixturevalue("make_lab")(hosts).hosts)
        else:
            names = request.getfixturevalue({2: "two_hosts", 4: "four_hosts"}[hosts])
        return box.Box(program, library, names)

    return make


@pytest.fixture(scope="session")
def named_plugin(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder in which the plugin has both names: its own, and the one for NCCL_NET_PLUGIN=harp."""
    folder = tmp_path_factory.mktemp("plugin")
    for name in ("libnccl-net.so", "libnccl-net-harp.so"):
        (folder / name).symlink_to(plugin_file)
    return folder


@pytest.fixture
def harp(named_plugin: Path) -> dict[str, str]:
    """Provide the environment that puts NCCL of any release on HARP."""
    return {
        "LD_LIBRARY_PATH": str(named_plugin),
        "NCCL_NET_PLUGIN": "harp",
        "NCCL_NET": "HARP",
        "HARP_IFNAME": "=eni0",
    }
