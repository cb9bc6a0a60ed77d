# SPDX-License-Identifier: Apache-2.0
"""Real NCCL over several ENIs: all carry its collectives, one is lost and comes back, NCCL merges them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from harplab.bench.nccl_run import NcclRun
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import poll_until
from tests.nccl import box, wheels
from tests.nccl.conftest import MakeBox
from tests.nccl.test_collectives import OPERATIONS
from tests.nccl.test_releases import version_numbers
from tests.placed import pci_addresses, write_confs

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

ENIS = 4
CAP_MBPS = 1000
ALL = "eni0+eni1+eni2+eni3"
MOST_BYTES = 16 << 20
SIZES = ("--min=64", f"--max={MOST_BYTES}", "--factor=4")
CHECKED = ("--check", "--iters=0", "--rounds=4")
FLAP_ROUNDS = 1200
MERGES_SINCE = (2, 27)  # 2.25 makes merged devices, and then does not use them
MERGES_AGAIN_SINCE = (2, 30)  # before, only the first communicator of a process is without the parts
VIA = re.compile(r"\[(?:send|receive)\] via NET/(\S+)")
JOINED = re.compile(r"NET/HARP: (\S+): connected ")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Provide two hosts with capped ENIs."""
    with Lab(LabSpec(enis=ENIS, cap_mbps=CAP_MBPS)) as built:
        yield built


@pytest.fixture
def striped(harp: dict[str, str]) -> dict[str, str]:
    """Provide all ENIs together."""
    return {**harp, "HARP_IFNAME": "eni"}


@pytest.fixture
def separate(striped: dict[str, str]) -> dict[str, str]:
    """Provide each ENI by itself."""
    return {**striped, "HARP_DEVICES": "enis", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV"}


@pytest.fixture(scope="module")
def receiver(lab: Lab) -> Iterator[int]:
    """Provide a process on host 1, whose counters are its host's."""
    with subprocess.Popen(lab.command(1, ["sleep", "infinity"])) as sleeper:
        poll_until("it is on the host", lambda: len(received_bytes(sleeper.pid)) == ENIS)
        yield sleeper.pid
        sleeper.kill()


def received_bytes(receiver: int) -> list[int]:
    """Read how many bytes each ENI of a process's host has received."""
    text = Path(f"/proc/{receiver}/net/dev").read_text()
    return [int(figure) for figure in re.findall(r"^ *eni\d+: *(\d+)", text, re.MULTILINE)]


def check_run(run: NcclRun, sizes: list[int], joined: set[str]) -> None:
    """Every size was there and right, over HARP alone, on connections over these interfaces."""
    description = run.describe()
    assert run.code == 0, description
    assert [row.bytes for row in run.sizes] == sizes, description
    assert {row.wrong for row in run.sizes} == {0}, description
    assert {via.partition("/")[0] for via in VIA.findall(run.log)} == {"HARP"}, description
    assert set(JOINED.findall(run.log)) == joined, description
    assert "WARN NET/HARP" not in run.log, description


def run_checked(
    one: box.Box, environment: dict[str, str], joined: set[str], *options: str, ranks: int = 0
) -> NcclRun:
    """Run an allreduce of all sizes."""
    run = one.run(*("--op=allreduce", *CHECKED, *SIZES, *options), environment=environment, ranks=ranks)
    check_run(run, box.list_sizes(64, MOST_BYTES, 4), joined)
    return run


# ---- devices over all ----


@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_carry(make_box: MakeBox, lab: Lab, receiver: int, striped: dict[str, str], operation: str) -> None:
    before = received_bytes(receiver)
    run = make_box(lab).run(*(f"--op={operation}", *CHECKED, *SIZES), environment=striped)
    check_run(run, box.list_sizes(64, MOST_BYTES, 4), {ALL})
    gained = [now - then for now, then in zip(received_bytes(receiver), before, strict=True)]
    assert min(gained) > sum(gained) / (4 * ENIS), f"{gained} bytes over the ENIs"


@pytest.mark.parametrize("release", [wheels.RELEASES[0], wheels.RELEASES[5]], ids=str)
def test_other_releases(make_box: MakeBox, lab: Lab, striped: dict[str, str], release: wheels.Release) -> None:
    run_checked(make_box(lab, release), striped, {ALL})


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 1, 0, 1)], ids=["neighbours", "alternating"])
def test_two_processes_per_host(
    make_box: MakeBox, lab: Lab, striped: dict[str, str], hosts: tuple[int, ...]
) -> None:
    """The processes of a host share its ENIs; data between them goes over HARP as well."""
    one = make_box(lab)
    names = tuple(one.hosts[host] for host in hosts)
    run_checked(dataclasses.replace(one, hosts=names), striped, {ALL}, "--type=int32")


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_lost_and_back(make_box: MakeBox, lab: Lab, receiver: int, striped: dict[str, str], engine: str) -> None:
    """One ENI after the other, on alternating sides, as long as the loop runs: NCCL notices nothing."""
    options = ("--op=allreduce", "--check", "--iters=0", f"--rounds={FLAP_ROUNDS}", "--min=1M", "--max=1M")
    environment = {**striped, "HARP_ENGINE": engine, "HARP_PEER_TIMEOUT": "60"}
    every = set(range(ENIS))
    flaps = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(make_box(lab).run, *options, environment=environment)
        _wait_until_carried(receiver, running, every)
        while not running.done():
            eni = flaps % ENIS
            lab.link_down(eni % 2, eni)
            went_on = _wait_until_carried(receiver, running, every - {eni})
            lab.link_up(eni % 2, eni)
            flaps += went_on and _wait_until_carried(receiver, running, {eni})
        run = running.result()
    description = run.describe()
    assert run.code == 0, description
    assert [row.wrong for row in run.sizes] == [0], description
    assert flaps > 1, f"the loop was over after {flaps} flaps\n{description}"


def _wait_until_carried(receiver: int, running: Future[NcclRun], enis: set[int]) -> bool:
    """Wait until these ENIs have received another MiB each; false when the loop ended before."""
    before = received_bytes(receiver)

    def carried() -> bool:
        now = received_bytes(receiver)
        return all(now[eni] > before[eni] + (1 << 20) for eni in enis)

    poll_until(f"ENIs {sorted(enis)} carry data", lambda: running.done() or carried())
    return carried()


def test_more_than_one_device_holds(make_box: MakeBox, striped: dict[str, str]) -> None:
    """Ten ENIs are striped in two halves, at no common place on the bus, so that NCCL merges none."""
    joined = {"eni0+eni1+eni2+eni3+eni4", "eni5+eni6+eni7+eni8+eni9"}
    run = run_checked(make_box(LabSpec(enis=10)), striped, joined)
    assert {via.removeprefix("HARP/") for via in VIA.findall(run.log)} <= {str(n) for n in range(10)}
    assert "Made vNic" not in run.log, run.describe()


def test_striped_devices_are_not_merged(
    make_box: MakeBox, lab: Lab, striped: dict[str, str], tmp_path: Path
) -> None:
    """NCCL merges devices of one place by itself; these are the same, and it spreads channels over them."""
    folder = write_confs(tmp_path / "conf", ENIS * pci_addresses(1))
    environment = {**striped, "HARP_CONF_DIR": str(folder), "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV"}
    del environment["HARP_IFNAME"]
    run = run_checked(make_box(lab), environment, {ALL})
    assert {via.removeprefix("HARP/") for via in VIA.findall(run.log)} == {"0", "1", "2", "3"}, run.describe()
    assert "Made vNic" not in run.log, run.describe()


# ---- a device for each ----


@pytest.mark.parametrize("release", [wheels.RELEASES[0], wheels.NEWEST], ids=str)
def test_nccl_chooses(make_box: MakeBox, lab: Lab, separate: dict[str, str], release: wheels.Release) -> None:
    """NCCL does not merge devices without a place on the bus, and spreads its channels over them."""
    run = run_checked(make_box(lab, release), separate, {f"eni{eni}" for eni in range(ENIS)})
    assert {via.removeprefix("HARP/") for via in VIA.findall(run.log)} == {"0", "1", "2", "3"}, run.describe()
    assert "Made vNic" not in run.log, run.describe()


FOUR, ONE = (0, 1, 2, 3), (0, 0, 0, 0)  # the PCI device that each ENI reports
MERGES: dict[str, tuple[tuple[int, ...], dict[str, str], set[str]]] = {
    "forced": (FOUR, {"NCCL_NET_FORCE_MERGE": "eni0,eni1;eni2,eni3"}, {"eni0+eni1", "eni2+eni3"}),
    "level": (FOUR, {"NCCL_NET_MERGE_LEVEL": "PHB"}, {ALL}),
    "not asked for": (FOUR, {}, {f"eni{eni}" for eni in range(ENIS)}),
    "one device, by default": (ONE, {}, {ALL}),
}


@pytest.mark.parametrize(
    "release", [r for r in wheels.RELEASES if version_numbers(r) >= MERGES_SINCE][::2], ids=str
)
@pytest.mark.parametrize("merge", MERGES)
def test_nccl_merges(
    make_box: MakeBox,
    lab: Lab,
    separate: dict[str, str],
    tmp_path: Path,
    merge: str,
    release: wheels.Release,
) -> None:
    """What NCCL merged is one device with a number after the others', and its connections are striped."""
    devices, settings, joined = MERGES[merge]
    addresses = pci_addresses(len(set(devices)))
    folder = write_confs(tmp_path / "conf", [addresses[device] for device in devices])
    environment = {**separate, **settings, "HARP_CONF_DIR": str(folder)}
    del environment["HARP_IFNAME"]
    run = run_checked(make_box(lab, release), environment, joined)
    merged = {name for name in joined if "+" in name}
    used = {via.removeprefix("HARP/") for via in VIA.findall(run.log)}
    assert run.log.count("Made vNic") == 2 * len(merged), run.describe()
    expected = {str(ENIS + at) for at in range(len(merged))} or {str(eni) for eni in range(ENIS)}
    assert used == expected, run.describe()


@pytest.mark.parametrize(
    "release", [r for r in wheels.RELEASES if version_numbers(r) >= MERGES_SINCE][::2], ids=str
)
def test_nccl_merges_again(
    make_box: MakeBox, lab: Lab, separate: dict[str, str], tmp_path: Path, release: wheels.Release
) -> None:
    """Each communicator has the merged devices under the same numbers; NCCL 2.27 adds the parts again."""
    folder = write_confs(tmp_path / "conf", pci_addresses(ENIS))
    forced = {"NCCL_NET_FORCE_MERGE": "eni0,eni1;eni2,eni3", "HARP_CONF_DIR": str(folder)}
    environment = {**separate, **forced}
    del environment["HARP_IFNAME"]
    run = make_box(lab, release).run(
        *("--op=allreduce", *CHECKED, "--min=1M", "--max=1M", "--cycles=4", "--comms=2"),
        environment=environment,
    )
    parts = version_numbers(release) < MERGES_AGAIN_SINCE
    check_run(
        run,
        4 * [1 << 20],
        {"eni0+eni1", "eni2+eni3"} | ({f"eni{n}" for n in range(ENIS)} if parts else set()),
    )
    used = {f"HARP/{n}" for n in range(0 if parts else ENIS, ENIS + 2)}
    assert set(VIA.findall(run.log)) == used, run.describe()
