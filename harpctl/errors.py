# SPDX-License-Identifier: Apache-2.0
"""The one exception that harpctl shows to a person, and how it is shown.

Whoever first knows the cause raises it; nobody in between wraps it again.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit code of the process; the command-line parser uses 2 for wrong usage."""

    FAILED = 1
    USAGE = 2
    WRONG_DATA = 3
    MISSING = 4
    REFUSED = 5
    INTERRUPTED = 130  # as shells have it


EXIT_CHANGES = 2  # the code of --dry-run --exit-code, as rules for such tools have it


class HarpError(Exception):
    """A finished sentence for the user, what to do about it, and the exit code."""

    def __init__(self, message: str, hint: str = "", exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message
