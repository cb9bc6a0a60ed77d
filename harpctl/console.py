# SPDX-License-Identifier: Apache-2.0
"""Output: progress on stderr, results on stdout, plain text without a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

import msgspec
from rich.console import Console
from rich.table import Table

WIDTH_MAX = 10_000  # columns of a table that goes into a pipe


class _QuietConsole(Console):
    """A console that goes quiet when its pipe is closed; rich would end the program."""

    def on_broken_pipe(self) -> None:
        """Write nothing more."""
        self.quiet = True


OUT = Console(highlight=False, soft_wrap=True, emoji=False)  # emoji: some are named like a part of a MAC
ERR = _QuietConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)


class Progress(Protocol):
    """Shows the progress of long work."""

    def working(self, title: str) -> contextlib.AbstractContextManager[None]:
        """Show that something is being done until the context ends."""

    def print(self, line: str) -> None:
        """Show one line that stays."""


class ConsoleProgress:
    """Progress on stderr: a spinner on a terminal, elsewhere one line per finished piece of work."""

    @contextlib.contextmanager
    def working(self, title: str) -> Iterator[None]:
        """Show a title, and how long it took when it ends."""
        begin = time.monotonic()
        try:
            if ERR.is_terminal:
                with ERR.status(title):
                    yield
            else:
                yield
        except BaseException:
            self.print(f"{title}: failed", style="red")
            raise
        seconds = time.monotonic() - begin
        self.print(f"{title}: done" + (f" ({seconds:.1f} s)" if seconds >= 1 else ""))

    def print(self, line: str, style: str | None = None) -> None:
        """Show one line; that it can't be written (a log on a full disk) does not stop the work."""
        with contextlib.suppress(OSError):
            ERR.print(line, style=style, markup=False)


class NoProgress:
    """Progress that nobody sees: --json, tests."""

    def working(self, title: str) -> contextlib.AbstractContextManager[None]:
        """Show nothing."""
        del title
        return contextlib.nullcontext()

    def print(self, line: str) -> None:
        """Show nothing."""


def print_table(table: Table, *, wide: bool = False) -> None:
    """Write a table on stdout: as wide as the terminal; elsewhere, or if `wide`, as wide as it needs."""
    # The console gets the width, as print() uses no more than the console's.
    width = OUT.width if OUT.is_terminal and not wide else WIDTH_MAX
    console = Console(
        file=OUT.file, width=width, force_terminal=OUT.is_terminal, highlight=False, emoji=False
    )
    with console.capture() as drawn:
        console.print(table)
    OUT.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))


def print_json(value: object) -> None:
    """Write a value as indented JSON on stdout, nothing else with it."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
