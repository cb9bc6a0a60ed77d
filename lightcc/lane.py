# SPDX-License-Identifier: Apache-2.0
"""A lane runs the communication of buckets beside backward, in the order of the buckets.

Collectives have to be started in one order on all ranks: never from callbacks of futures. On the CPU a lane
is a thread, which ends with the lane, at destroy_process_group() and before the interpreter exits; on CUDA it
is a stream.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

import torch

JOIN_S = 5  # a thread that waits for a dead peer longer than this does not keep the process
Step = Callable[[], torch.Tensor]
Steps = queue.SimpleQueue[tuple[Step, torch.futures.Future[torch.Tensor]] | None]  # None ends the thread
_open: weakref.WeakSet[CpuLane] = weakref.WeakSet()


class Lane(Protocol):
    """The interface of both lanes."""

    def submit(self, step: Step) -> torch.futures.Future[torch.Tensor]:
        """Run a step after those submitted before; return the future of its tensor."""


class CpuLane:
    """A thread that runs one step after another."""

    def __init__(self) -> None:
        self._queue: Steps = queue.SimpleQueue()
        thread = threading.Thread(target=_work, args=(self._queue,), name="lightcc", daemon=True)
        thread.start()
        self._finalizer = weakref.finalize(self, _end, self._queue, thread)  # at exit, too
        _open.add(self)

    def close(self) -> None:
        """End the thread, once it has run what was submitted."""
        self._finalizer()

    def submit(self, step: Step) -> torch.futures.Future[torch.Tensor]:
        """Run a step after those submitted before; what it raises is raised by the future's wait()."""
        if not self._finalizer.alive:
            raise RuntimeError("lightcc: the process group of this model was destroyed")
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._queue.put((step, future))
        return future


class CudaLane:
    """A stream: the caller's thread starts the kernels and collectives, the GPU runs them in order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def submit(self, step: Step) -> torch.futures.Future[torch.Tensor]:
        """Start a step on the stream, after what the current stream was given until now."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[self._device])
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            future.set_result(step())  # records an event on this stream
        return future


def open_lane(device: torch.device) -> Lane:
    """Open a lane for tensors of a device."""
    return CudaLane(device) if device.type == "cuda" else CpuLane()


def close_all() -> None:
    """End the threads of all lanes of this process."""
    for lane in list(_open):
        lane.close()


def _work(steps: Steps) -> None:
    while (item := steps.get()) is not None:
        step, future = item
        try:
            future.set_result(step())
        except Exception as error:  # noqa: BLE001  # backward() raises it
            future.set_exception(error)
        del item, step, future  # or the thread would keep the last bucket


def _end(steps: Steps, thread: threading.Thread) -> None:
    steps.put(None)
    if thread is not threading.current_thread():
        thread.join(JOIN_S)
