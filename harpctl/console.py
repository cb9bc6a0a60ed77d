# SPDX-License-Identifier: Apache-2.0
"""Output: progress on stderr, results on stdout, plain text without a terminal.

Texts may come from other hosts, users and files. Whatever is written here has its control characters as
visible escapes, so that no text can command the terminal or change what stands before it.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from harpctl.errors import ExitCode, HarpError

WIDTH_MAX = 10_000  # columns of a table that goes into a pipe
LAYOUT = "\n\t"  # control characters that lay out a text of several lines


def escape_unprintable(text: str, keep: str = "") -> str:
    """Return a text with escapes for what is not printable, and for line ends that are not to be kept."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


class Console(rich.console.Console):
    """A console that writes no control character of a text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object; all that rich writes is rendered here, and parts of it again by itself."""
        for segment in super().render(renderable, options):
            yield (segment if segment.control else segment._replace(text=escape_unprintable(segment.text, LAYOUT)))


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


def make_table(*heads: str, folded: Collection[str] = (), right: bool = False) -> Table:
    """Make a table without lines; the columns `folded` give way on a narrow terminal."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head not in folded, justify="right" if right else "left")
    return table


def print_table(table: Table, *, wide: bool = False) -> None:
    """Write a table on stdout: as wide as the terminal; elsewhere, or if `wide`, as wide as it needs."""
    # The console gets the width, as print() uses no more than the console's.
    width = OUT.width if OUT.is_terminal and not wide else WIDTH_MAX
    console = Console(file=OUT.file, width=width, force_terminal=OUT.is_terminal, highlight=False, emoji=False)
    with console.capture() as drawn:
        console.print(table)
    OUT.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().split("\n")[:-1]))


def print_lines(text: str) -> None:
    """Write lines on stdout as they are, tabs included: a diff, a file's text."""
    OUT.file.write(escape_unprintable(text, LAYOUT))


def ask_for_yes(question: str) -> None:
    """Ask on the terminal itself, never on standard input. Raises HarpError where the answer is not yes."""
    terminal = Path("/dev/tty")  # opened twice, because Python opens for both only what can seek
    with terminal.open("w", encoding="utf-8") as screen, terminal.open(encoding="utf-8") as keyboard:
        screen.write(f"{escape_unprintable(question)} [y/N] ")
        screen.flush()
        answer = keyboard.readline().strip().lower()
    if answer not in {"y", "yes"}:
        raise HarpError("Nothing changed.", "Answer y to apply it, or run it with --yes.", ExitCode.REFUSED)


def to_json(value: object) -> bytes:
    """Return a value as indented JSON that can be printed: what is not printable is escaped."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file's name that is no UTF-8
        data = json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")
    text = msgspec.json.format(data, indent=2).decode()
    return re.sub(r"[^\n -~]", _escape_match, text).encode() + b"\n"


def _escape_match(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]


def print_json(value: object) -> None:
    """Write a value as indented JSON on stdout, nothing else with it."""
    sys.stdout.write(to_json(value).decode())
