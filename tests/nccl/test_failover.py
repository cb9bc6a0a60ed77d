# SPDX-License-Identifier: Apache-2.0
"""Real NCCL loses one of four interfaces in mid-operation: how long it pauses, and its rate from then on.

Timed, so only with --nccl --beside-socket, on a machine that does nothing else.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from harplab.bench.nccl_run import NcclRun
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import poll_until
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

MakeLab = Callable[[LabSpec], Lab]
ENIS = 4
CAP_MBPS = 1000
LOST = 1
JOB_S = 5.0
STRETCH_S = 1.5  # before the failure, and after it
SAMPLE_S = 0.001
STEP_BYTES = 256 << 10  # a pause: so long until so much more has come; 0.7 ms of the capped rate
PAUSE_MAX_S = 0.1
SHARE_MIN = 0.7  # the share of the rate before: three quarters, and what a machine's noise takes


@pytest.fixture(autouse=True)
def _only_where_requested(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--beside-socket"):
        pytest.skip("asked for with --beside-socket")


@dataclasses.dataclass(frozen=True)
class Sample:
    """Bytes that the ENIs of a host had received at a time."""

    at_s: float
    bytes_: int


class Receiver:
    """The ENIs of a host, seen by a process there."""

    def __init__(self, pid: int) -> None:
        self.path = Path(f"/proc/{pid}/net/dev")

    def sample(self) -> Sample:
        """Read what they have received in all."""
        found = re.findall(r"^ *eni\d+: *(\d+)", self.path.read_text(), re.MULTILINE)
        return Sample(time.monotonic(), sum(map(int, found)))

    def watch(self, running: Future[NcclRun], for_s: float) -> list[Sample]:
        """Sample for a time while the job runs."""
        samples = [self.sample()]
        while samples[-1].at_s < samples[0].at_s + for_s:
            assert not running.done(), running.result().describe()
            time.sleep(SAMPLE_S)
            samples.append(self.sample())
        return samples


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    """Provide two hosts with capped ENIs."""
    return make_lab(LabSpec(enis=ENIS, cap_mbps=CAP_MBPS))


@pytest.fixture
def receiver(lab: Lab) -> Iterator[Receiver]:
    """Provide what counts the bytes that host 1 receives."""
    with subprocess.Popen(lab.command(1, ["sleep", "infinity"])) as sleeper:
        one = Receiver(sleeper.pid)
        poll_until("it is on the host", lambda: one.path.read_text().count("eni") == ENIS)
        yield one
        sleeper.kill()


def rate_bps(samples: list[Sample]) -> float:
    """Return the rate over these samples."""
    first, last = samples[0], samples[-1]
    return (last.bytes_ - first.bytes_) * 8 / (last.at_s - first.at_s)


def longest_pause_s(samples: list[Sample]) -> float:
    """Return the longest time in which no more than a step was received."""
    longest, begin = 0.0, samples[0]
    for sample in samples:
        longest = max(longest, sample.at_s - begin.at_s)
        if sample.bytes_ >= begin.bytes_ + STEP_BYTES:
            begin = sample
    return longest


@pytest.mark.parametrize("operation", ["allreduce", "alltoall", "sendrecv"])
def test_one_of_four_is_lost(
    make_box: MakeBox,
    lab: Lab,
    receiver: Receiver,
    harp: dict[str, str],
    operation: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = (f"--op={operation}", "--min=16M", "--max=16M", f"--time={JOB_S}")
    environment = {**harp, "HARP_IFNAME": "eni"}
    start = receiver.sample()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(make_box(lab).run, *options, environment=environment)
        poll_until("it moves", lambda: running.done() or receiver.sample().bytes_ > start.bytes_ + (64 << 20))
        before = receiver.watch(running, STRETCH_S)
        lab.faults(0, LOST).blackhole()
        after = receiver.watch(running, STRETCH_S)
        run = running.result()
    assert run.code == 0, run.describe()
    pause_s = longest_pause_s(after)
    share = rate_bps(after[len(after) // 3 :]) / rate_bps(before)
    with capsys.disabled():
        print(
            f"\n{operation}: {rate_bps(before) / 1e9:.2f} Gbit/s, one of {ENIS} lost: "
            f"a pause of {pause_s * 1e3:.0f} ms (before {longest_pause_s(before) * 1e3:.0f}), "
            f"then {share:.2f} of it"
        )
    assert pause_s <= PAUSE_MAX_S
    assert share >= SHARE_MIN
