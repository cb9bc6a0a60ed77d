# SPDX-License-Identifier: Apache-2.0
"""The lane and the report on CUDA, over a stand-in for its streams and events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.lightcc.conftest import NO_TORCH, Case

torch = pytest.importorskip("torch", reason=NO_TORCH)

from lightcc import lane  # noqa: E402  # they need torch
from lightcc.report import Report  # noqa: E402
from tests.lightcc import streams  # noqa: E402
from tests.lightcc.streams import DEVICE, Event, Stream, work  # noqa: E402


@pytest.fixture
def main() -> Iterator[Stream]:
    """Install the stand-in; return the stream of backward."""
    with streams.installed() as stream:
        yield stream


def test_the_device_decides(main: Stream) -> None:
    assert main is Stream.current
    on_gpu, on_cpu = lane.open_lane(DEVICE), lane.open_lane(torch.device("cpu"))
    assert isinstance(on_gpu, lane.CudaLane)
    assert isinstance(on_cpu, lane.CpuLane)
    on_cpu.close()


def test_a_stream_runs_beside_backward(main: Stream) -> None:
    """A step comes after what made its gradients; backward waits for it with the future, not before."""
    opened = lane.open_lane(DEVICE)
    before: list[set[str]] = []

    def step(name: str) -> Any:
        assert Stream.current is not main
        before.append(work(name))
        return torch.ones(1)

    work("gradients 0")
    first = opened.submit(lambda: step("sum 0"))
    work("gradients 1")
    second = opened.submit(lambda: step("sum 1"))
    assert before == [{"gradients 0"}, {"gradients 0", "sum 0", "gradients 1"}]
    assert Stream.current is main
    assert work("more of backward") == {"gradients 0", "gradients 1"}
    first.wait()
    assert "sum 0" in main.done
    assert "sum 1" not in main.done
    second.wait()
    assert "sum 1" in main.done


def test_an_error_is_backwards_own(main: Stream) -> None:
    def step() -> Any:
        raise RuntimeError("no peer")

    with pytest.raises(RuntimeError, match="no peer"):
        lane.open_lane(DEVICE).submit(step)
    assert Stream.current is main


@pytest.mark.usefixtures("main")
def test_times_of_several_streams() -> None:
    """The report waits for each stream, of which none says that another has ended."""
    report = Report(DEVICE)
    lanes = [lane.open_lane(DEVICE) for _ in range(2)]

    def hop(ms: float) -> Any:
        Event.clock_ms += ms
        return torch.ones(1)

    for opened, ms in zip(lanes, (4.0, 2.0), strict=True):
        opened.submit(partial(report.timed, partial(hop, ms), 10, 30))
    stats = report.stats()
    assert (stats["hops"], stats["host_bytes"], stats["ring_bytes"]) == (2, 20, 60)
    assert stats["hop_ms"] == pytest.approx(3.0)


def test_streams_and_threads_train_alike(run_case: Case) -> None:
    chosen = {"two_d": True, "inter_dtype": "int8", "topk": True, "streams": 2}
    wanted = {"are_equal": True, "replicas": True, "lanes": ["CudaLane"] * 2}
    assert run_case("on_streams", chosen=chosen).results == [wanted] * 4
