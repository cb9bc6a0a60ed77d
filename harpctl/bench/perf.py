"""Runs harp-perf, one process per rank, and reads its JSON: rank 0's standard output is the report."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO

import msgspec

from harpctl.bench.places import CpuTimes, Hosts, Program
from harpctl.errors import ExitCode, HarpError

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


class Latency(msgspec.Struct, frozen=True):
    """Half round trip in microseconds."""

    min: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    mean: float


class Result(msgspec.Struct, frozen=True):
    """What harp-perf says of one message size."""

    bytes: int
    messages: int  # received by all ranks together
    seconds: float
    algbw_gbps: float
    busbw_gbps: float
    wrong: int
    latency_us: Latency | None = None
    cpu_s: float = 0.0


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
    results: list[Result]


@dataclasses.dataclass(frozen=True)
class PerfJob:
    """One call of harp-perf: what every rank is asked."""

    mode: str
    sizes_bytes: tuple[int, ...]
    connections: int = 1
    inflight: int = 8
    check: bool = True
    time_s: float = 1.0
    iterations: int | None = None
    abi: int | None = None
    device: int | None = None

    def timeout_s(self) -> float:
        """Bound a run: what it was asked to take, and generous start-up and calibration."""
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
    argv.append("--check" if job.check else "--no-check")
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
    try:
        return msgspec.json.decode(text, type=PerfReport)
    except msgspec.MsgspecError as error:
        start = text.strip()[:120] or "nothing"
        raise HarpError(f"harp-perf's report can't be read: {error}; it begins with: {start}") from None


def run_perf(hosts: Hosts, program: Program, job: PerfJob) -> PerfRun:
    """Run all ranks to their end and read rank 0's report; a rank that fails is named with its last lines."""
    ranks, rendezvous = hosts.count(), hosts.rendezvous()
    program = hosts.place(program)
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(ranks)]
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(ranks)]
        before = hosts.cpu()
        children: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, children)
        for rank in range(ranks):
            env = hosts.env(rank) | dict(program.env)
            argv = hosts.command(rank, perf_argv(program, job, rank, ranks, rendezvous), env)
            children.append(_start(argv, outputs[rank], errors[rank]))
        late = _wait(children, job.timeout_s())
        cpu = hosts.cpu().since(before)
        failed = [rank for rank, child in enumerate(children) if child.returncode not in {0, None}]
        if failed or late:
            raise _failure(program, children, errors, late)
        return PerfRun(parse_report(_text(outputs[0])), cpu)


def _start(argv: list[str], output: IO[bytes], error: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=error)
    except OSError as os_error:
        raise HarpError(f"{argv[0]} can't be started: {os_error.strerror}.", "", ExitCode.MISSING) from None


def _wait(children: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> list[int]:
    """Wait for all, or for one to fail and the others to notice; give the ranks that still run."""
    deadline = time.monotonic() + timeout_s
    in_grace = False
    while True:
        codes = [child.poll() for child in children]
        if all(code is not None for code in codes):
            return []
        if not in_grace and any(code not in {0, None} for code in codes):
            in_grace, deadline = True, min(deadline, time.monotonic() + GRACE_S)
        if time.monotonic() > deadline:
            return [rank for rank, code in enumerate(codes) if code is None]
        time.sleep(POLL_S)


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _failure(
    program: Program,
    children: Sequence[subprocess.Popen[bytes]],
    errors: Sequence[IO[bytes]],
    late: Sequence[int],
) -> HarpError:
    lines = []
    for rank, child in enumerate(children):
        code = child.returncode
        if rank in late:
            state = "did not end"
        elif code is not None and code < 0:
            state = f"ended by signal {-code}"
        else:
            state = f"exit code {code}"
        said = _text(errors[rank]).strip().splitlines()[-STDERR_LINES:]
        lines.append(f"rank {rank}: {state}" + "".join(f"\n      {line}" for line in said))
    return HarpError(f"harp-perf failed with {program.plugin}.", "\n  ".join(lines))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
