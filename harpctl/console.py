"""What harpctl says while it works: progress on stderr, results on stdout, plain without a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

import msgspec
from rich.console import Console
from rich.table import Table

OUT = Console(file=None, highlight=False, soft_wrap=True)
WIDTH_MAX = 10_000  # columns of a table that goes into a pipe
ERR = Console(stderr=True, highlight=False, soft_wrap=True)


class Progress(Protocol):
    """Where long work says what it is doing."""

    def working(self, title: str) -> contextlib.AbstractContextManager[None]:
        """Show that something is being done until the context ends."""

    def say(self, line: str) -> None:
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
            ERR.print(f"{title}: failed", style="red", markup=False)
            raise
        seconds = time.monotonic() - begin
        ERR.print(f"{title}: done" + (f" ({seconds:.1f} s)" if seconds >= 1 else ""), markup=False)

    def say(self, line: str) -> None:
        """Show one line."""
        ERR.print(line, markup=False)


class NoProgress:
    """Progress that nobody sees: --json, tests."""

    def working(self, title: str) -> contextlib.AbstractContextManager[None]:
        """Show nothing."""
        del title
        return contextlib.nullcontext()

    def say(self, line: str) -> None:
        """Show nothing."""


def print_table(table: Table) -> None:
    """Write a table on stdout: as wide as the terminal, and elsewhere as wide as it needs."""
    width = OUT.width if OUT.is_terminal else WIDTH_MAX  # print() takes no width beyond the console's own
    Console(file=OUT.file, width=width, force_terminal=OUT.is_terminal, highlight=False).print(table)


def print_json(value: object) -> None:
    """Write a value as indented JSON on stdout, nothing else with it."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
