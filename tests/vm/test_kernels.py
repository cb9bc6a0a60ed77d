# SPDX-License-Identifier: Apache-2.0
"""Jobs on the oldest kernel that there is a package of, with itself and with the newest one.

What each chose, and its rates beside NCCL's sockets, are printed for docs/reference/kernels.md. The rates are
of emulated processors, so they are never judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from harplab.bench.nccl_wheel import socket_baseline
from harplab.perf.job import parse_report
from tests.vm.conftest import booted, payload_of
from tests.vm.guest_image import NEWEST, OLDEST, guest_image
from tests.vm.guests import PLUGIN, Guests, assert_nothing_left, config_of, finish, start

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

NIC = "eth2"  # with a real NIC's offloads
SIZES = "1,8,127,1000,4096,16385,64K,512K,1M"
RATE_SIZES = "4K,64K,1M"
RATE_S = 3
DRIVERS = ("auto", "udp", "tcp", "xdp")
CHOSEN = re.compile(r"closing driver ([^\n]*)")
OLD = "udp gso+gro"  # what is there since Linux 5.0
SOCKET = f"NCCL_SOCKET_IFNAME=={NIC} NCCL_LIB=/mnt/libnccl.so.2"


class Pair(NamedTuple):
    """Two guests, and what the second one's kernel is."""

    guests: Guests
    second: str


@contextmanager
def paired(root: Path, payload: Path, namespace: str, folder: Path, second: str) -> Iterator[Pair]:
    cache = root / ".cache" / "vm"
    images = guest_image(cache, OLDEST), guest_image(cache, second)
    with booted(images, payload, namespace, folder) as both:
        yield Pair(both, second)


@pytest.fixture(scope="module")
def comparing(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A disk with the plugin, harp-perf, and NCCL with the shim that shows its sockets; the shim's name."""
    shim, env = socket_baseline()
    files = (plugin_file, plugin_file.parent / "harp-perf", shim, Path(env["NCCL_LIB"]))
    return payload_of(files, tmp_path_factory.mktemp("comparing")), shim.name


@pytest.fixture(scope="module", params=[OLDEST, NEWEST], ids=["two old", "old and new"])
def pair(
    root: Path,
    comparing: tuple[Path, str],
    namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Pair]:
    with paired(root, comparing[0], namespace, tmp_path_factory.mktemp("pair"), request.param) as both:
        yield both


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("driver", DRIVERS)
def test_data_arrives_whole(pair: Pair, driver: str, version: int) -> None:
    words = f"--mode bidir --sizes {SIZES} --iters 8 --warmup 2"
    start(pair.guests, (driver, driver), words, config_of(NIC, version))
    first, _second = finish(pair.guests)
    chosen = {"tcp": "driver tcp", "xdp": "driver xdp"}.get(driver, f"driver {OLD}")
    assert chosen in first.log
    if driver in ("auto", "tcp"):
        assert first.statistics["tx_records"] > 0 or pair.second == NEWEST
    assert_nothing_left(pair.guests)


def test_rates(pair: Pair, comparing: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Print a table; every byte is checked."""
    sides = {driver: f"{config_of(NIC)} HARP_DRIVER={driver}" for driver in DRIVERS}
    kernels = " to ".join(guest.kernel for guest in pair.guests)
    lines = [f"{kernels}, Gbit/s of {RATE_SIZES}, emulated"]
    for name, env in {**sides, "NCCL Socket": SOCKET}.items():
        for guest in reversed(pair.guests):
            plugin = comparing[1] if name == "NCCL Socket" else PLUGIN
            guest.start(env, f"--mode stream --sizes {RATE_SIZES} --time {RATE_S}", plugin=plugin)
        ends = [guest.wait() for guest in pair.guests]
        assert [end.code for end in ends] == [0, 0], ends[0].log
        report = parse_report(pair.guests[0].machine.run("cat /run/job/report"))
        assert all(result.messages > 0 and result.wrong == 0 for result in report.results)
        rates = " ".join(f"{result.algbw_gbps:8.3f}" for result in report.results)
        chosen = [found[1] for end in ends if (found := CHOSEN.search(end.log))]
        lines.append(f"{name:12}{rates}  {'; '.join(chosen)}")
    with capsys.disabled():
        print("", *lines, sep="\n")
