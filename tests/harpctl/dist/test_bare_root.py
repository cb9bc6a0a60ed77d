# SPDX-License-Identifier: Apache-2.0
"""Two lines from nothing: a user without root in a bare Debian installs harp_net, and a job uses HARP."""

from __future__ import annotations

from pathlib import Path

import pytest

from dist.make import BUILD
from harpctl.errors import HarpError
from harplab.bench.nccl_wheel import NEWEST, fetch_nccl, wheel_of
from harplab.perf.baseline import cache_dir
from tests.harpctl.dist.conftest import Chroot, only_file_for
from tests.harpctl.dist.test_deb import Debian

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]

USER = 1000
NAME_IT = "export NCCL_NET_PLUGIN=$(/tmp/venv/bin/python -m harp_net)"


@pytest.fixture
def host(out: Path, debian: Debian) -> Chroot:
    """Provide a bare Debian in which a user has installed the wheel into an environment."""
    made: Chroot = debian("bookworm")
    wheel = made.put(only_file_for(out, "harp_net-*.whl"))
    made.run("python3", "-m", "venv", "/tmp/venv", uid=USER)
    made.run("/tmp/venv/bin/pip", "install", "--no-index", wheel, uid=USER)
    return made


def test_harp_perf(host: Chroot) -> None:
    perf = host.put(BUILD / "harp-perf")
    words = f"{perf} --plugin $NCCL_NET_PLUGIN --mode pingpong --sizes 64K --iters 1000 2>&1"
    output = host.run("sh", "-c", f"{NAME_IT}; {words} --log info", uid=USER)
    assert '(HARP, net v12), device 0 "eth0"' in output
    assert "# wrong: 0 OK" in output
    line = host.run("sh", "-c", f"{NAME_IT}; /tmp/venv/bin/harp-run {words} --log none", uid=USER)
    assert "harp-run: 2 processes of this host used HARP: " in line
    assert line.rstrip().endswith("over eth0")


def test_harp_nccl(host: Chroot) -> None:
    program = BUILD / "harp-nccl"
    if not program.is_file():
        pytest.skip("harp-nccl is for x86-64")
    try:
        library = fetch_nccl(wheel_of(NEWEST), cache_dir())
    except HarpError as error:
        pytest.skip(str(error))
    words = f"{host.put(program)} --lib {host.put(library)} --op=allreduce --max=64K --check"
    output = host.run("sh", "-c", f"{NAME_IT}; NCCL_DEBUG=INFO {words} 2>&1", uid=USER)
    assert "Using network HARP" in output
    assert "Using network Socket" not in output
