# SPDX-License-Identifier: Apache-2.0
"""A stand-in for CUDA's streams, events and futures: what is done on a stream knows what was done before it.

Nothing runs in the background: work is done at once, and `done` says what a GPU would have done by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

DEVICE = torch.device("cuda", 0)
TORCHS_FUTURE: Any = torch.futures.Future


class Stream:
    """A stream, as the works that come before whatever it does next."""

    current: Stream

    def __init__(self, _device: torch.device | None = None) -> None:
        self.done: set[str] = set()

    def wait_stream(self, other: Stream) -> None:
        self.done |= other.done


class Event:
    """An event of a stream; the GPU has reached it once the host waited for it."""

    clock_ms = 0.0

    def __init__(self, *, enable_timing: bool = False) -> None:
        self.has_time = enable_timing
        self.is_reached = False

    def record(self) -> None:
        self.done = set(Stream.current.done)
        self.at_ms = Event.clock_ms

    def synchronize(self) -> None:
        self.is_reached = True

    def elapsed_time(self, end: Event) -> float:
        assert self.has_time
        assert end.has_time
        assert end.is_reached, "CUDA error: device not ready"
        return end.at_ms - self.at_ms


class Future(torch.futures.Future):  # type: ignore[misc]  # torch is not typed here
    """A future that knows what its value comes after."""

    def __class_getitem__(cls, item: object) -> Any:
        """Return the type that DDP looks for in a hook's annotations."""
        return TORCHS_FUTURE[item]

    def __init__(self, *, devices: list[torch.device]) -> None:
        assert devices == [DEVICE]
        super().__init__()
        self.event = Event()

    def set_result(self, result: Any) -> None:
        self.event.record()
        super().set_result(result)

    def wait(self) -> Any:
        Stream.current.done |= self.event.done
        return super().wait()


def work(name: str) -> set[str]:
    """Do something on the current stream; return what was done before it."""
    before = set(Stream.current.done)
    Stream.current.done.add(name)
    return before


@contextmanager
def _on(stream: Stream) -> Iterator[None]:
    outer, Stream.current = Stream.current, stream
    try:
        yield
    finally:
        Stream.current = outer


@contextmanager
def installed() -> Iterator[Stream]:
    """Put the stand-in in CUDA's place; return the stream that is current."""
    Stream.current = Stream()
    Event.clock_ms = 0.0
    with (
        mock.patch.multiple(
            torch.cuda, Stream=Stream, Event=Event, stream=_on, current_stream=lambda _device: Stream.current
        ),
        mock.patch.object(torch.futures, "Future", Future),
    ):
        yield Stream.current
