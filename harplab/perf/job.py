# SPDX-License-Identifier: Apache-2.0
"""Runs harp-perf, one process per rank, and reads its JSON: rank 0's standard output is the report."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Annotated

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.records import decode_json
from harpctl.ssh import OUTPUT_BYTES_MAX
from harplab.perf.hosts import CpuTimes, Hosts, Program

POLL_S = 0.01
GRACE_S = 5.0  # how long the other ranks may take to notice that one has failed
STDERR_LINES = 12


class Mode(str, enum.Enum):
    """harp-perf's patterns."""

    STREAM = "stream"
    BIDIR = "bidir"
    PINGPONG = "pingpong"
    RING = "ring"
    ALLTOALL = "alltoall"
    INCAST = "incast"


class Latency(msgspec.Struct, frozen=True):
    """Half round trip, or with incast the time of a message from its first offer; in microseconds."""

    min: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    mean: float


class Connection(msgspec.Struct, frozen=True):
    """The traffic of one connection within a window."""

    from_rank: int = msgspec.field(name="from")
    to_rank: int = msgspec.field(name="to")
    index: int
    bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class RankFailure(msgspec.Struct, frozen=True):
    """A rank's report of its plugin's failure."""

    rank: int
    text: str


class Window(msgspec.Struct, frozen=True):
    """A run by the clock: `start_ns` in rank 0's CLOCK_MONOTONIC, `samples` of bytes received."""

    start_ns: int
    interval_ms: int
    samples: list[int]
    connections: list[Connection]
    failures: list[RankFailure]
    undelivered: int


class PerfResult(msgspec.Struct, frozen=True):
    """harp-perf's result for one message size."""

    bytes: int
    messages: int  # received by all ranks together
    seconds: float
    algbw_gbps: float
    busbw_gbps: float
    wrong: int
    latency_us: Latency | None = None
    cpu_s: float = 0.0
    window: Window | None = None


class PerfReport(msgspec.Struct, frozen=True):
    """harp-perf's JSON; fields that a newer harp-perf adds are ignored."""

    plugin: str
    name: str
    abi: int
    mode: str
    nranks: int
    connections: int
    inflight: int
    check: bool
    results: list[PerfResult]


@dataclasses.dataclass(frozen=True)
class PerfJob:
    """One call of harp-perf: what every rank is asked."""

    mode: str
    sizes_bytes: tuple[int, ...]
    connections: int = 1
    inflight: int = 8
    check: bool = True
    wait_sent: bool = False  # ping-pong: each send is waited for before the receive
    time_s: float = 1.0
    iterations: int | None = None
    abi: int | None = None
    device: int | None = None
    interval_ms: int | None = None  # by the clock: one size, for time_s
    warmup: int | None = None  # messages per connection before each size

    def timeout_s(self) -> float:
        """Bound a run: the time that it was set to take, and generous start-up and calibration."""
        per_size_s = 60.0 if self.iterations is not None else self.time_s * 4 + 10.0
        return 60.0 + per_size_s * len(self.sizes_bytes)


@dataclasses.dataclass(frozen=True)
class PerfRun:
    """A report with the machine time that the whole run took, start-up included."""

    report: PerfReport
    cpu: CpuTimes


def perf_argv(program: Program, job: PerfJob, rank: int, ranks: int, rendezvous: str) -> list[str]:
    """Write one rank's command line."""
    argv = [str(program.perf), "--plugin", str(program.plugin), "--mode", job.mode]
    argv += ["--sizes", ",".join(str(size) for size in job.sizes_bytes)]
    argv += ["--connections", str(job.connections), "--inflight", str(job.inflight)]
    if job.iterations is not None:
        argv += ["--iters", str(job.iterations)]
    else:
        argv += ["--time", f"{job.time_s:g}"]
    if job.interval_ms is not None:
        argv += ["--interval-ms", str(job.interval_ms)]
    if job.warmup is not None:
        argv += ["--warmup", str(job.warmup)]
    argv.append("--check" if job.check else "--no-check")
    if job.wait_sent:
        argv.append("--wait-sent")
    if job.abi is not None:
        argv += ["--abi", str(job.abi)]
    if job.device is not None:
        argv += ["--dev", str(job.device)]
    argv += ["--rank", str(rank), "--nranks", str(ranks), "--rendezvous", rendezvous]
    if rank == 0:
        argv += ["--json", "-"]
    return argv


def parse_report(text: str) -> PerfReport:
    """Read harp-perf's JSON strictly: a missing field or a wrong type is an error that names it."""
    start = text.strip()[:120] or "nothing"
    return decode_json(text, PerfReport, "harp-perf's report", f"It begins with: {start}")


class Ranks:
    """The processes of one harp-perf run, one per rank; a context manager that leaves none behind."""

    def __init__(self, hosts: Hosts, program: Program, job: PerfJob) -> None:
        self._hosts, self._job = hosts, job
        self._program = hosts.place(program)
        self._children: list[subprocess.Popen[bytes]] = []
        self._outputs: list[IO[bytes]] = []
        self._errors: list[IO[bytes]] = []

    def __enter__(self) -> Ranks:
        count, rendezvous = self._hosts.count(), self._hosts.rendezvous()
        with contextlib.ExitStack() as stack:
            self._outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
            self._errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
            stack.callback(_end_ranks, self._children)
            for rank in range(count):
                env = self._hosts.env(rank) | dict(self._program.env)
                argv = perf_argv(self._program, self._job, rank, count, rendezvous)
                argv = self._hosts.command(rank, argv, env)
                self._children.append(_start_rank(argv, self._outputs[rank], self._errors[rank]))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> list[int]:
        """Wait for all, or for one to fail and the others to notice; return the ranks that still run."""
        deadline = time.monotonic() + self._job.timeout_s()
        in_grace = False
        while True:
            codes = [child.poll() for child in self._children]
            if all(code is not None for code in codes):
                return []
            if not in_grace and any(code not in {0, None} for code in codes):
                in_grace, deadline = True, min(deadline, time.monotonic() + GRACE_S)
            if time.monotonic() > deadline:
                return [rank for rank, code in enumerate(codes) if code is None]
            time.sleep(POLL_S)

    def running(self) -> bool:
        """Return whether all ranks still run."""
        return all(child.poll() is None for child in self._children)

    def all_well(self) -> bool:
        """Return whether all ranks ended without an error."""
        return all(child.returncode == 0 for child in self._children)

    def output(self, rank: int) -> str:
        """Return a rank's standard output so far."""
        return _read_output(self._outputs[rank])

    def stderr(self, rank: int) -> str:
        """Return a rank's standard error so far."""
        return _read_output(self._errors[rank])

    def failure(self, late: Sequence[int]) -> HarpError:
        """Make the error that names each rank's end, with its last lines."""
        lines = []
        for rank, child in enumerate(self._children):
            code = child.returncode
            if rank in late:
                state = "did not end"
            elif code is not None and code < 0:
                state = f"ended by signal {-code}"
            else:
                state = f"exit code {code}"
            tail = self.stderr(rank).strip().splitlines()[-STDERR_LINES:]
            lines.append(f"rank {rank}: {state}" + "".join(f"\n      {line}" for line in tail))
        return HarpError(f"harp-perf failed with {self._program.plugin}.", "\n  ".join(lines))


def run_perf(hosts: Hosts, program: Program, job: PerfJob) -> PerfRun:
    """Run all ranks to their end and read rank 0's report; a rank that fails is named with its last lines."""
    before = hosts.cpu()
    with Ranks(hosts, program, job) as ranks:
        late = ranks.wait()
        cpu = hosts.cpu().since(before)
        if late or not ranks.all_well():
            raise ranks.failure(late)
        return PerfRun(parse_report(ranks.output(0)), cpu)


def _start_rank(argv: list[str], output: IO[bytes], error: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=error)
    except OSError as os_error:
        raise HarpError(
            f"{argv[0]} can't be started: {os_error.strerror}.",
            "Build it: ./harp_setup build",
            ExitCode.MISSING,
        ) from None


def _end_ranks(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _read_output(file: IO[bytes]) -> str:
    """Read a file that a process writes, no more than a bound: its position is that of both, and stays."""
    size = min(os.fstat(file.fileno()).st_size, OUTPUT_BYTES_MAX)
    return os.pread(file.fileno(), size, 0).decode(errors="replace")
