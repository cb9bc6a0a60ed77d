# SPDX-License-Identifier: Apache-2.0
"""Runs commands: on this machine, or not at all for a directory tree. Tests bring their own runner."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Protocol

import msgspec

from harpctl.errors import ExitCode, HarpError

SEARCH_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
TIMEOUT_S = 120.0
PROGRAM_MISSING = 127  # exit code


class Completed(msgspec.Struct, frozen=True):
    """The result of a command. Output is text, undecodable bytes replaced."""

    argv: tuple[str, ...]
    code: int
    stdout: str = ""
    stderr: str = ""

    @property
    def last_line(self) -> str:
        """Return the last line that the command wrote to stderr, else to stdout, else its exit code."""
        for text in (self.stderr, self.stdout):
            if lines := text.strip().splitlines():
                return lines[-1]
        return f"exit code {self.code}"


class Runner(Protocol):
    """Runs commands given as argument lists; there is never a shell between."""

    runs: bool  # False: every run is refused, and plans must do without commands

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        """Run to the end; a missing program is exit code 127, one that ran out of time 124."""


class LiveRunner:
    """Runs commands of this machine with a fixed PATH, the C locale, and nothing on standard input."""

    runs = True

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        """Run to the end; see Runner."""
        env = {**os.environ, "PATH": ":".join(SEARCH_PATH), "LC_ALL": "C"}
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env=env,
                check=False,
            )
        except FileNotFoundError:
            return Completed(tuple(argv), PROGRAM_MISSING, "", f"{argv[0]}: not found")
        except PermissionError:
            return Completed(tuple(argv), 126, "", f"{argv[0]}: permission denied")
        except subprocess.TimeoutExpired:
            return Completed(tuple(argv), 124, "", f"{argv[0]}: did not end within {timeout_s:g} s")
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return Completed(tuple(argv), done.returncode, out, err)


class NoRunner:
    """Refuses: no command runs for a directory tree."""

    runs = False

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        """Refuse; that a plan requires it is our own mistake."""
        del timeout_s
        raise HarpError(
            f"`{' '.join(argv)}` was to run for a directory tree.",
            "This is a defect of harpctl: with --root no command may run. Please report it.",
            ExitCode.FAILED,
        )
