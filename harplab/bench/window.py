# SPDX-License-Identifier: Apache-2.0
"""Runs harp-perf for a fixed time, and changes the lab at given times after its start.

harp-perf prints on standard error when its window starts, in the machine's monotonic time, which is this
program's too where both are on one machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import msgspec

from harpctl.errors import HarpError
from harplab.bench.failure import Event
from harplab.bench.timeline import Samples
from harplab.lab.lab import Lab
from harplab.perf.counts import PacketCounts, packets_since
from harplab.perf.hosts import Hosts, Program
from harplab.perf.job import PerfJob, PerfReport, Ranks, parse_report

POLL_S = 0.002
END_S = 10.0
FLOW_PROGRAM = Path(__file__).with_name("tcp_flow.py")
FLOW_PORT = 20999
_STARTS = re.compile(r"window starts at (\d+) ns")


@dataclasses.dataclass(frozen=True)
class PastEvent:
    """An event that took place, by the run's own clock."""

    at_s: float
    name: str


@dataclasses.dataclass(frozen=True)
class WindowResult:
    """The outcome of one side: a report, or where harp-perf ended without one, the ranks' errors."""

    report: PerfReport | None
    errors: str
    events: tuple[PastEvent, ...]
    competing_flow: Samples | None  # TCP's, from the start of the window
    packets: PacketCounts | None = None  # the packets of the whole run, start-up included


class FlowReport(msgspec.Struct, frozen=True):
    """The output of tcp_flow.py at its end."""

    start_ns: int
    interval_ms: int
    samples: list[int]


class CompetingFlow:
    """A flow of kernel TCP between two hosts of the lab; a context manager."""

    def __init__(self, lab: Lab, sender: int, receiver: int, interval_ms: int) -> None:
        self._lab, self._sender, self._receiver = lab, sender, receiver
        self._interval_ms = interval_ms
        self._stack = contextlib.ExitStack()
        self._receiving: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CompetingFlow:
        argv = ["receive", self._lab.address(self._receiver), str(FLOW_PORT), str(self._interval_ms)]
        self._receiving = self._start_child(self._receiver, argv)
        if _output_of(self._receiving).readline().strip() != b"ready":
            self._stack.close()
            raise HarpError("The flow of TCP could not be started.")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self) -> None:
        """Begin to send."""
        argv = ["send", self._lab.address(self._receiver), str(FLOW_PORT), self._lab.spec.congestion]
        self._start_child(self._sender, argv)

    def finish(self, start_ns: int) -> Samples:
        """End the flow and return its samples from a time on."""
        receiving = self._receiving
        assert receiving is not None  # noqa: S101  (between enter and exit)
        receiving.send_signal(signal.SIGTERM)
        report = msgspec.json.decode(_output_of(receiving).read(), type=FlowReport)
        late = round((report.start_ns - start_ns) / 1e6 / report.interval_ms)
        return Samples(report.interval_ms / 1000, [0] * max(late, 0) + report.samples[max(-late, 0) :])

    def _start_child(self, host: int, words: Sequence[str]) -> subprocess.Popen[bytes]:
        argv = self._lab.command(host, [sys.executable, "-I", str(FLOW_PROGRAM), *words])
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._stack.callback(_stop_child, child)
        return child


def _output_of(child: subprocess.Popen[bytes]) -> IO[bytes]:
    assert child.stdout is not None  # noqa: S101  (it was requested)
    return child.stdout


def _stop_child(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait(timeout=END_S)
    _output_of(child).close()


def run_window(
    hosts: Hosts,
    program: Program,
    job: PerfJob,
    events: Sequence[Event] = (),
    do: Callable[[Event], None] = lambda _event: None,
    competing_flow: CompetingFlow | None = None,
) -> WindowResult:
    """Run one window; `do` is called for each event when it is due. A plugin that fails is no error here."""
    before = hosts.packets()
    with Ranks(hosts, program, job) as ranks, competing_flow or contextlib.nullcontext():
        start_ns = _await_start(ranks, job)
        done: list[PastEvent] = []
        if start_ns and competing_flow:
            competing_flow.send()
        for event in events if start_ns else ():
            while ranks.running() and time.monotonic_ns() < start_ns + event.at_s * 1e9:
                time.sleep(POLL_S)
            if not ranks.running():
                break
            done.append(PastEvent((time.monotonic_ns() - start_ns) / 1e9, event.name()))
            do(event)
        if competing_flow and start_ns:
            while ranks.running() and time.monotonic_ns() < start_ns + job.time_s * 1e9:
                time.sleep(POLL_S)
        measured = competing_flow.finish(start_ns) if competing_flow and start_ns else None
        late = ranks.wait()
        errors = ranks.failure(late).hint if late or not ranks.all_well() else ""
        report = _report_of(ranks)
        return WindowResult(report, errors, tuple(done), measured, packets_since(before, hosts.packets()))


def _await_start(ranks: Ranks, job: PerfJob) -> int:
    """Wait until the window starts; return when, or 0 where the ranks ended before."""
    deadline = time.monotonic() + job.timeout_s()
    while time.monotonic() < deadline:
        running = ranks.running()
        if found := _STARTS.search(ranks.stderr(0)):
            return int(found[1])
        if not running:
            return 0
        time.sleep(POLL_S)
    return 0


def _report_of(ranks: Ranks) -> PerfReport | None:
    text = ranks.output(0)
    return parse_report(text) if text.strip() else None
