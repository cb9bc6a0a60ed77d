# SPDX-License-Identifier: Apache-2.0
"""The same over AF_XDP, between namespaces: modes, frame sizes, an ENI that goes down, a rank that dies.

By default AddressSanitizer sees a transfer and a flap; with --xdp every sanitizer sees everything.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests import native
from tests.lab.job import ALL_SIZES, UNTIL_FINISHED, Job, poll_until
from tests.lab.xdp import GENERIC, IP6, NATIVE, XDP, add_ip6, hold_queue, until_connected
from tests.sanitize.conftest import MAY_BUILD, OPTIONS, REPORT

pytestmark = [pytest.mark.lab, MAY_BUILD]
MakeLab = Callable[[LabSpec], Lab]
FEW = ("--iters", "8", "--warmup", "2")
FOREVER = ("--time", "600", "--warmup", "2")
WAIT_S = 120.0
DOWN_S = 0.3


@pytest.fixture
def plugin(variant: str) -> Path:
    return native.PLUGIN_DIR / "build" / variant / "libnccl-net.so"


@pytest.fixture
def rest(request: pytest.FixtureRequest) -> None:
    """Leave the test out unless it is requested."""
    if not request.config.getoption("--xdp"):
        pytest.skip("asked for with --xdp")


def _make_job(lab: Lab, plugin: Path, variant: str, words: tuple[str, ...], **env: str) -> Job:
    own = {**XDP, **OPTIONS[variant], **env}
    sizes = ALL_SIZES if words == FEW else "256K"
    return Job(lab, plugin, mode="bidir", sizes=sizes, words=words, env=own)


def _assert_clean(job: Job) -> None:
    for rank in range(job.count):
        log = job.log(rank)
        assert not REPORT.search(log), log[-native.TAIL_CHARS :]


def _run_transfer(lab: Lab, plugin: Path, hold: Path, variant: str, mode: str = GENERIC, **env: str) -> None:
    with contextlib.ExitStack() as stack:
        for host in range(2 if mode == NATIVE else 0):
            stack.enter_context(hold_queue(lab, host, hold, "harp", "native"))
        job = stack.enter_context(_make_job(lab, plugin, variant, FEW, **env))
        job.finish(WAIT_S)
        _assert_clean(job)
        assert [job.driver_mode(0), job.driver_mode(1)] == [mode, mode]


def _flap_eni(lab: Lab, plugin: Path, variant: str, engine: str) -> None:
    """Take the ENI away while frames are under way: the driver falls, or sends by sockets for a while."""
    with _make_job(lab, plugin, variant, UNTIL_FINISHED, HARP_ENGINE=engine) as job:
        job.until_moving()
        lab.set_link(1, 0, up=False)
        start = time.monotonic()
        poll_until("the driver has felt it", lambda: time.monotonic() > start + DOWN_S)
        lab.set_link(1, 0, up=True)
        job.until_moving()
        job.finish(WAIT_S, may_fall_back=True)
        _assert_clean(job)


@pytest.mark.parametrize("variant", ["asan"], indirect=True)
def test_transfer(make_lab: MakeLab, plugin: Path, xdp_hold: Path, variant: str) -> None:
    """Packets of several frames, the engine's own thread and a runner for each direction."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=9000))
    _run_transfer(lab, plugin, xdp_hold, variant, HARP_ENGINE="thread", HARP_PATHS="4")


@pytest.mark.parametrize("variant", ["asan"], indirect=True)
def test_flap(make_lab: MakeLab, plugin: Path, variant: str) -> None:
    _flap_eni(make_lab(LabSpec(enis=2)), plugin, variant, "thread")


@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize(
    ("mode", "ip6", "mtu_bytes", "queues"),
    [
        (GENERIC, False, 1500, 1),
        (GENERIC, True, 9000, 2),
        (NATIVE, False, 9000, 1),
        (NATIVE, True, 1500, 2),
    ],
)
def test_all_transfers(
    make_lab: MakeLab,
    plugin: Path,
    xdp_hold: Path,
    variant: str,
    mode: str,
    ip6: bool,
    mtu_bytes: int,
    queues: int,
    engine: str,
) -> None:
    lab = make_lab(LabSpec(enis=2, mtu_bytes=mtu_bytes, queues=queues))
    if ip6:
        add_ip6(lab)
    more = IP6 if ip6 else {}
    _run_transfer(lab, plugin, xdp_hold, variant, mode, HARP_ENGINE=engine, HARP_PATHS="2", **more)


@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_all_flaps(make_lab: MakeLab, plugin: Path, variant: str, engine: str) -> None:
    _flap_eni(make_lab(LabSpec(enis=2)), plugin, variant, engine)


@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_dead_rank(make_lab: MakeLab, plugin: Path, variant: str, engine: str) -> None:
    """The survivor closes its queues with frames under way."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin, variant, FOREVER, HARP_ENGINE=engine) as job:
        until_connected(job, 0)
        job.until_moving()
        job.ranks[1].kill()
        job.wait(WAIT_S)
        _assert_clean(job)
