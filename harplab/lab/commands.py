# SPDX-License-Identifier: Apache-2.0
"""One step of a lab's plan, and the two kinds that most are."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Command:
    """A command with what it reads on its standard input."""

    argv: tuple[str, ...]
    stdin: str = ""

    def __str__(self) -> str:
        line = shlex.join(self.argv)
        return f"{line} <<'END'\n{self.stdin}END" if self.stdin else line


Run = Callable[[Command], str]  # returns what the command printed; raises HarpError where it failed


def ip_inside(namespace: str, *words: str) -> Command:
    """Make a command of the ip tool for a namespace."""
    return Command(("ip", "-netns", namespace, *words))


def run_inside(namespace: str, *words: str, stdin: str = "") -> Command:
    """Make a command that runs inside a namespace."""
    return Command(("ip", "netns", "exec", namespace, *words), stdin)
