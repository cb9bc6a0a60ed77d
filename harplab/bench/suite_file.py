# SPDX-License-Identifier: Apache-2.0
"""The JSON of `harpctl lab suite`: written after each work, and read again to go on from there."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec

from harpctl.build_info import build_version
from harpctl.errors import ExitCode, HarpError
from harplab.bench.cores import CoreFigures
from harplab.bench.suite_run import SuiteRow

MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
DIGEST_CHARS = 12


class Made(msgspec.Struct, frozen=True):
    """By what, where and how rows were made; those of one file have all of it in common."""

    build: str
    plugin: str  # the beginning of the file's SHA-256
    nccl: str
    processor: str
    cpus: int
    kernel: str
    cores: tuple[int, ...]
    quick: bool


class SuiteFile(msgspec.Struct):
    """All that was measured so far; `core_figures` and `loads` have an entry for each call that measured.

    A load is the machine's average number of running threads in the minute before a call.
    """

    made: Made
    rows: list[SuiteRow] = []
    core_figures: list[CoreFigures] = []
    loads: list[float] = []


def made_here(plugin: Path, nccl: str, cores: tuple[int, ...], *, is_quick: bool) -> Made:
    """Describe what this call would measure, and on what."""
    found = MODEL.search(_read_text(Path("/proc/cpuinfo")))
    return Made(
        build=build_version(),
        plugin=hashlib.sha256(plugin.read_bytes()).hexdigest()[:DIGEST_CHARS],
        nccl=nccl,
        processor=found[1].strip() if found else os.uname().machine,
        cpus=os.cpu_count() or 1,
        kernel=os.uname().release,
        cores=cores,
        quick=is_quick,
    )


def open_file(path: Path | None, made: Made) -> SuiteFile:
    """Return what a file has, or a new one. Raises HarpError where it is something else."""
    if path is None or not path.exists():
        return SuiteFile(made)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SuiteFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise HarpError(
            f"{path} is not a JSON file of `harpctl lab suite`: {error}.",
            "Name another file.",
            ExitCode.USAGE,
        ) from None


def name_differences(one: Made, other: Made) -> list[str]:
    """Name what two ways to make rows do not have in common."""
    return [field for field in Made.__struct_fields__ if getattr(one, field) != getattr(other, field)]


def write_file(path: Path, content: SuiteFile) -> None:
    """Replace a file in one step. Raises HarpError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(encode_suite(content))
        part.replace(path)
    except OSError as error:
        raise HarpError(f"{path} can't be written: {error.strerror}.", "Name a file that you may write.") from None


def encode_suite(content: SuiteFile) -> bytes:
    """Write the content as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
