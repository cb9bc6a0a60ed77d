# SPDX-License-Identifier: Apache-2.0
"""The suite, or a part of it, several times: `./harp_setup test --again N [--beside K] [ARGS of pytest]`.

What each run printed, and what each failed test printed, are files of a folder; a table says which tests have
failed how often. Busy processes beside the suite show which tests depend on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.conftest import BUILD_DIR, ROOT

BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(10**6))
"""
BAD = ("failure", "error")
PYTEST_FAILED = 1  # the exit code where tests failed; others above 0 are no result


@dataclass(frozen=True)
class Failed:
    """A test that failed in a run, and the file with its output."""

    test: str
    output: Path


@dataclass(frozen=True)
class Ran:
    """One run of the suite."""

    code: int
    tests: int
    skipped: int
    failed: tuple[Failed, ...]
    seconds: float

    @property
    def is_good(self) -> bool:
        """Return whether all passed."""
        return self.code == 0

    def row(self, number: int) -> str:
        """Return its row of the table."""
        result = "passed" if self.is_good else "failed" if self.code == PYTEST_FAILED else f"exit code {self.code}"
        passed = self.tests - self.skipped - len(self.failed)
        return f"| {number} | {result} | {passed} | {len(self.failed)} | {self.skipped} | {self.seconds:.0f} s |"


@contextlib.contextmanager
def keep_busy(count: int) -> Iterator[list[int]]:
    """Keep so many processes busy, which end with this one at the latest; provide their numbers."""
    words = [sys.executable, "-c", BUSY, str(os.getpid())]
    processes = [subprocess.Popen(words) for _ in range(count)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def read_results(results: Path, code: int, seconds: float) -> Ran:
    """Read pytest's results; write what each failed test printed beside them."""
    if not results.is_file():
        return Ran(code, 0, 0, (), seconds)
    cases = list(ET.parse(results).iter("testcase"))  # noqa: S314  pytest wrote it
    skipped, failed = 0, []
    for case in cases:
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        bad = [part for part in case if part.tag in BAD]
        skipped += not bad and case.find("skipped") is not None
        if not bad:
            continue
        output = results.with_name(f"{results.stem}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:150]}.txt")
        output.write_text("\n\n".join(f"{part.get('message', '')}\n{part.text or ''}" for part in case))
        failed.append(Failed(name, output))
    return Ran(code, len(cases), skipped, tuple(failed), seconds)


def run_once(number: int, beside: int, folder: Path, words: Sequence[str]) -> Ran:
    """Run the suite."""
    results = folder / f"run-{number}.xml"
    results.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "pytest", f"--junit-xml={results}", *words]
    began_s = time.monotonic()
    with keep_busy(beside), results.with_suffix(".log").open("w") as log:
        code = subprocess.run(argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    return read_results(results, code, time.monotonic() - began_s)


def write_table(runs: Sequence[Ran], beside: int) -> str:
    """Write the runs, and the tests that failed, as Markdown."""
    good = sum(run.is_good for run in runs)
    longest_s = max((run.seconds for run in runs), default=0.0)
    head = f"{good} of {len(runs)} runs passed, beside {beside} busy processes; longest: {longest_s:.0f} s."
    lines = [head, "", "| run | result | passed | failed | skipped | time |", "|---|---|---|---|---|---|"]
    lines += [run.row(number) for number, run in enumerate(runs, 1)]
    failures: dict[str, list[Path]] = {}
    for run in runs:
        for failed in run.failed:
            failures.setdefault(failed.test, []).append(failed.output)
    if failures:
        lines += ["", "| failed test | times | output of the last |", "|---|---|---|"]
        often = sorted(failures.items(), key=lambda item: -len(item[1]))
        lines += [f"| {test} | {len(outputs)} | {outputs[-1]} |" for test, outputs in often]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Run; return the exit code: 1 where any run failed."""
    parser = argparse.ArgumentParser(prog="./harp_setup test --again", description=__doc__, allow_abbrev=False)
    parser.add_argument("runs", type=int, metavar="N", help="how often")
    parser.add_argument("--beside", type=int, default=0, metavar="K", help="busy processes beside it")
    parser.add_argument("--folder", type=Path, default=BUILD_DIR / "again", help="where the output is")
    wanted, words = parser.parse_known_args(argv)
    wanted.folder.mkdir(parents=True, exist_ok=True)
    for file in wanted.folder.glob("run-*"):
        file.unlink()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs: list[Ran] = []
    try:
        for number in range(1, wanted.runs + 1):
            runs.append(run_once(number, wanted.beside, wanted.folder, words))
            print(runs[-1].row(number), flush=True)
    except KeyboardInterrupt:
        print("stopped; the run under way does not count", flush=True)
    text = write_table(runs, wanted.beside)
    (wanted.folder / "table.md").write_text(text)
    print(f"\n{text}")
    return 0 if len(runs) == wanted.runs and all(run.is_good for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
