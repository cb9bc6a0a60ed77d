# SPDX-License-Identifier: Apache-2.0
"""Runs harp-nccl, which runs an official NCCL without a GPU, and reads its report: a JSON object a line."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from harpctl.errors import ExitCode, HarpError

OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce", "sendrecv", "alltoall")
DIVIDED = ("allgather", "reducescatter", "alltoall")  # the size is that of all ranks' parts together
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
TYPE_BYTES = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
}
WRONG_DATA = 4  # harp-nccl's exit code where an element was not what it should be
TIMEOUT_MARGIN_S = 30.0  # harp-nccl ends its ranks itself; this is for harp-nccl
LAST_LINES_MAX = 6
LINE_START = '{"kind"'
NETWORK = re.compile(r"Using network (\S+)")
WARNING = re.compile(r"NCCL WARN (.*)")


class Start(msgspec.Struct, frozen=True, tag="start", tag_field="kind"):
    """A run of harp-nccl: `nccl` is 22203 for 2.22.3."""

    nccl: int
    ranks: int
    op: str


class Size(msgspec.Struct, frozen=True, tag="size", tag_field="kind"):
    """One size: `time_us` of one operation (0: not timed), elements that were wrong (None: nobody looked)."""

    bytes: int
    count: int
    type: str
    redop: str
    time_us: float
    iterations: int
    algbw_gbps: float
    busbw_gbps: float
    wrong: int | None


class Cycle(msgspec.Struct, frozen=True, tag="cycle", tag_field="kind"):
    """The communicators were made and destroyed."""

    number: int
    init_s: float
    destroy_s: float


class Survivor(msgspec.Struct, frozen=True, tag="survivor", tag_field="kind"):
    """The report of a rank that outlived another; `noticed_s`: since the failed operation began."""

    rank: int
    operations: int
    how: str
    error: str
    noticed_s: float
    abort: int
    abort_s: float
    drained_s: float
    last_error: str


class PlanCycle(msgspec.Struct, frozen=True, tag="plan", tag_field="kind"):
    """A rank took all steps of a plan: checked operations since the start, what its process has in use."""

    rank: int
    cycle: int
    took_s: float
    operations: int
    wrong: int
    files: int
    threads: int
    memory_kib: int


class Loss(msgspec.Struct, frozen=True, tag="loss", tag_field="kind"):
    """The error by which a rank learned in a step of a plan that another is dead."""

    rank: int
    noticed_s: float
    error: str
    last_error: str


Line = Start | Size | Cycle | Survivor | PlanCycle | Loss
_LINE = msgspec.json.Decoder(Line)


@dataclasses.dataclass(frozen=True)
class NcclRun:
    """One run: how it ended, what harp-nccl printed, what NCCL logged on all ranks."""

    argv: tuple[str, ...]
    code: int
    output: str
    log: str

    @property
    def lines(self) -> list[Line]:
        """Return what was reported, in its order."""
        return parse_lines(self.output)

    @property
    def sizes(self) -> list[Size]:
        """Return the table; several cycles follow one another."""
        return [line for line in self.lines if isinstance(line, Size)]

    @property
    def survivors(self) -> list[Survivor]:
        """Return the reports of the ranks that outlived the killed one, in the order of their ranks."""
        found = [line for line in self.lines if isinstance(line, Survivor)]
        return sorted(found, key=lambda survivor: survivor.rank)

    @property
    def cycles(self) -> int:
        """Return how many times the communicators were made and destroyed."""
        return sum(isinstance(line, Cycle) for line in self.lines)

    @property
    def plan_cycles(self) -> list[PlanCycle]:
        """Return the cycles of a plan, of all ranks."""
        return [line for line in self.lines if isinstance(line, PlanCycle)]

    @property
    def losses(self) -> list[Loss]:
        """Return the errors by which ranks learned that another is dead."""
        return [line for line in self.lines if isinstance(line, Loss)]

    @property
    def networks(self) -> set[str]:
        """Return the names of the networks that NCCL logs as used."""
        return set(NETWORK.findall(self.log))

    def last_lines(self) -> list[str]:
        """Return the last lines for a person: NCCL's warnings, and harp-nccl's other output."""
        warnings = [f"NCCL: {text}" for text in dict.fromkeys(WARNING.findall(self.log))]
        others = [line for line in self.output.splitlines() if line and not line.startswith(LINE_START)]
        return [
            *warnings[-LAST_LINES_MAX:],
            *[line for line in others if "NCCL" not in line][-LAST_LINES_MAX:],
        ]

    def describe(self) -> str:
        """Return all that is known, for the message of a failed assertion."""
        command = " ".join(self.argv)
        return f"{command}\nexit code {self.code}\n{self.output[-6000:]}\n--- NCCL's log\n{self.log[-8000:]}"


def parse_lines(output: str) -> list[Line]:
    """Read the report; other lines, which old releases of NCCL log there, are left out."""
    try:
        return [_LINE.decode(line) for line in output.splitlines() if line.startswith(LINE_START)]
    except msgspec.MsgspecError as error:
        raise HarpError(f"harp-nccl's report can't be read: {error}.") from None


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Drop what the user has set for NCCL and HARP."""
    return {name: value for name, value in environment.items() if not name.startswith(("NCCL_", "HARP_"))}


def run_nccl(
    program: Path, library: Path, options: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> NcclRun:
    """Run harp-nccl to its end, with NCCL's log in files of its own."""
    argv = (str(program), "--json", f"--lib={library}", f"--timeout={timeout_s:g}", *options)
    with tempfile.TemporaryDirectory(prefix="harp-nccl-") as folder:
        settings = {
            **clean_environment(os.environ),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_FILE": f"{folder}/nccl.%p.log",
            **environment,
        }
        code, output = _run_program(argv, settings, timeout_s + TIMEOUT_MARGIN_S)
        files = sorted(Path(folder).glob("nccl.*.log"))
        log = "".join(file.read_text(errors="replace") for file in files)
    return NcclRun(argv, code, output, log or output)


def _run_program(argv: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    try:
        process = subprocess.Popen(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise HarpError(
            f"{argv[0]} can't be started: {error.strerror}.", "Build it: ./harp_setup build", ExitCode.MISSING
        ) from None
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output
