"""The ncclbox tool: finds it, builds it into the cache, runs it and reads what it printed.

The tool runs an official libnccl.so.2 in ordinary processes whose GPU is played by threads. Its sources stay
where they are; they are copied beside the compiled program, in a folder named by their content.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError

ROOT = Path(__file__).resolve().parents[2]
TOOL_VARIABLE = "HARP_NCCLBOX"
SOURCE_ENDINGS = (".cc", ".h")
BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 300
# Old releases log to the standard output, whatever NCCL_DEBUG_FILE says: then lines must at least stay whole.
LINE_BY_LINE = ("stdbuf", "-oL")
WRONG_DATA = 4  # its exit code where some byte was not what it should be
ROW = re.compile(
    r"^ +(?P<bytes>\d+) +(?P<count>\d+) +(?P<type>\w+) +(?P<redop>\w+) +(?P<time_us>[\d.]+) +[\d.]+ +[\d.]+"
    r" +(?P<wrong>\d+|N/A)$",
    re.MULTILINE,
)
CYCLE = re.compile(
    r"^# cycle (?P<number>\d+): init (?P<init_s>[\d.]+) s, destroy (?P<destroy_s>[\d.]+) s$", re.MULTILINE
)
SURVIVOR = re.compile(
    r"^rank (?P<rank>\d+): (?P<operations>\d+) operations, then (?P<how>[^:]+(?:: watchdog's abort)?): "
    r"(?P<error>.*); noticed after (?P<noticed_s>[\d.]+) s, "
    r"abort returned (?P<abort>-?\d+) after (?P<abort_s>[\d.]+) s, "
    r"stream drained after (?P<drained_s>[\d.]+) s; last error: (?P<last_error>.*)$",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One size: bytes of the operation, microseconds of one (0: not timed), elements that were wrong."""

    bytes: int
    time_us: float
    wrong: int | None  # None: nobody looked


@dataclasses.dataclass(frozen=True)
class Survivor:
    """What a rank told that outlived another."""

    rank: int
    operations: int
    how: str
    error: str
    noticed_s: float  # since the start of the operation that broke
    abort: int
    abort_s: float
    drained_s: float
    last_error: str


@dataclasses.dataclass(frozen=True)
class BoxRun:
    """One run: how it ended, what the tool printed, what NCCL logged on all ranks."""

    argv: tuple[str, ...]
    code: int
    output: str
    log: str

    @property
    def rows(self) -> list[Row]:
        """The table, in its order; several cycles follow one another."""
        return parse_rows(self.output)

    @property
    def survivors(self) -> list[Survivor]:
        """What the ranks told that outlived the killed one."""
        return parse_survivors(self.output)

    @property
    def cycles(self) -> int:
        """How many times the communicators were made and destroyed."""
        return len(CYCLE.findall(self.output))

    def describe(self) -> str:
        """Say all that is known, for the message of a failed assertion."""
        command = " ".join(self.argv)
        return f"{command}\nexit code {self.code}\n{self.output[-6000:]}\n--- NCCL's log\n{self.log[-8000:]}"


def parse_rows(output: str) -> list[Row]:
    """Read the table of sizes."""
    return [
        Row(
            int(match["bytes"]),
            float(match["time_us"]),
            None if match["wrong"] == "N/A" else int(match["wrong"]),
        )
        for match in ROW.finditer(output)
    ]


def parse_survivors(output: str) -> list[Survivor]:
    """Read the sentences of the ranks that were not killed, in the order of their ranks."""
    found = [
        Survivor(
            rank=int(match["rank"]),
            operations=int(match["operations"]),
            how=match["how"],
            error=match["error"],
            noticed_s=float(match["noticed_s"]),
            abort=int(match["abort"]),
            abort_s=float(match["abort_s"]),
            drained_s=float(match["drained_s"]),
            last_error=match["last_error"],
        )
        for match in SURVIVOR.finditer(output)
    ]
    return sorted(found, key=lambda survivor: survivor.rank)


def sizes(least: int, most: int, factor: int) -> list[int]:
    """List the sizes that the tool goes through."""
    found = []
    while least <= most:
        found.append(least)
        least *= factor
    return found


def find_sources() -> Path:
    """Give the folder with the tool's sources: where the variable says, else beside the checkout."""
    named = os.environ.get(TOOL_VARIABLE)
    folder = Path(named) if named else ROOT.parent / "shared" / "tools" / "ncclbox"
    if not (folder / "Makefile").is_file():
        raise HarpError(
            f"The tool ncclbox is not in {folder}.",
            f"Set {TOOL_VARIABLE} to the folder that holds its sources.",
            ExitCode.MISSING,
        )
    return folder


def digest(files: Iterable[Path]) -> str:
    """Give a short name for what the files hold and are called."""
    hashed = hashlib.sha256()
    for file in sorted(files):
        hashed.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return hashed.hexdigest()[:12]


def build(cache: Path) -> Path:
    """Give the compiled tool, compiling it where the cache lacks one of these sources."""
    source = find_sources()
    files = [file for file in source.iterdir() if file.name == "Makefile" or file.suffix in SOURCE_ENDINGS]
    folder = cache / f"ncclbox-{digest(files)}"
    program = folder / "ncclbox"
    if program.exists():
        return program
    missing = [tool for tool in ("make", "g++", "stdbuf") if shutil.which(tool) is None]
    if missing:
        raise HarpError(f"ncclbox needs {' and '.join(missing)}.", exit_code=ExitCode.MISSING)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        part = Path(scratch) / "ncclbox"
        part.mkdir()
        for file in files:
            shutil.copyfile(file, part / file.name)
        done = subprocess.run(
            ["make", "-C", str(part), f"-j{os.cpu_count() or 1}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=BUILD_TIMEOUT_S,
        )
        if done.returncode:
            raise HarpError(f"ncclbox does not compile: {done.stdout[-2000:]}", exit_code=ExitCode.MISSING)
        if not program.exists():  # somebody else may have been as quick
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
    return program


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Drop what the person who runs the tests has set for NCCL and HARP."""
    return {name: value for name, value in environment.items() if not name.startswith(("NCCL_", "HARP_"))}


@dataclasses.dataclass(frozen=True)
class Box:
    """The compiled tool with one NCCL and the namespaces of its ranks."""

    program: Path
    library: Path
    hosts: tuple[str, ...]
    scratch: Path

    def run(
        self,
        *options: str,
        environment: Mapping[str, str],
        ranks: int = 0,
        timeout_s: int = RUN_TIMEOUT_S,
    ) -> BoxRun:
        """Run it to its end with NCCL's log in files of its own; ranks 0 means one per namespace."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        settings = {
            **clean_environment(os.environ),
            "NCCL_LIB": str(self.library),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_FILE": str(folder / "nccl.%p.log"),
            "NCCL_SOCKET_IFNAME": "eni0",
            **environment,
        }
        argv = [
            *LINE_BY_LINE,
            str(self.program),
            f"--ranks={ranks or len(self.hosts)}",
            f"--netns={','.join(self.hosts)}",
            f"--timeout={timeout_s}",
            *options,
        ]
        code, output = _run(argv, settings, timeout_s)
        log = "".join(file.read_text(errors="replace") for file in sorted(folder.glob("nccl.*.log")))
        return BoxRun(tuple(argv), code, output, log or output)


def _run(argv: Sequence[str], environment: Mapping[str, str], timeout_s: int) -> tuple[int, str]:
    """The tool ends its ranks itself when its time is over; the second limit is for the tool."""
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
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s + 30)
        except BaseException:
            os.killpg(process.pid, 9)
            raise
    return process.returncode, output
