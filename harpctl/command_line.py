# SPDX-License-Identifier: Apache-2.0
"""Declares commands and their options, and has the options of several commands.

These are click's, with three differences: errors end a command as failures.py says, the help has options
under headings, and arguments have a help text, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from harpctl.failures import report_failures

FILE = click.Path(path_type=Path)
ARGUMENTS, OPTIONS = "Arguments", "Options"  # the headings that come first
METAVARS = {f"{kind}{form}": "N" for kind in ("integer", "float") for form in ("", " range")}
F = TypeVar("F", bound=Callable[..., Any] | click.Command)


class Argument(click.Argument):
    """An argument with a help text, which click has since 8.5."""

    def __init__(self, names: Sequence[str], help: str, **more: Any) -> None:  # noqa: A002 - click's word
        super().__init__(names, **more)
        self.help, self.heading = help, ARGUMENTS

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the two columns of the help."""
        del ctx
        return self.human_readable_name, self.help or ""


class Option(click.Option):
    """An option under a heading of the help, which shows its default if there is one."""

    def __init__(self, names: Sequence[str], heading: str = OPTIONS, **more: Any) -> None:
        super().__init__(names, **{"show_default": more.get("default") not in {None, "", ()}, **more})
        self.heading = heading
        self.metavar = self.metavar or METAVARS.get(self.type.name)


class Command(click.Command):
    """A command that reports its errors, and whose help has headings."""

    def invoke(self, ctx: click.Context) -> object:
        """Run it."""
        with report_failures(ctx):
            return super().invoke(ctx)

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence of the help, whole: the list of commands is wrapped."""
        del limit
        return super().get_short_help_str(len(self.help or ""))

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave them to format_options, as before click 8.5."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write arguments and options under their headings."""
        rows: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OPTIONS: []}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                rows.setdefault(getattr(param, "heading", OPTIONS), []).append(record)
        for heading in filter(rows.get, rows):
            with formatter.section(heading):
                formatter.write_dl(rows[heading])


class Group(Command, click.Group):
    """A command with commands of its own, which are listed in their order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names."""
        del ctx
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options and commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def command(name: str | None = None) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, with its name unless another is given; its help is the docstring."""
    return click.command(name, cls=Command)


def argument(name: str, **more: Any) -> Callable[[F], F]:
    """Declare an argument; `help` is needed, `metavar` has brackets where it can be left out."""
    return click.argument(name, cls=Argument, **more)


def option(*names: str, **more: Any) -> Callable[[F], F]:
    """Declare an option as click.option does, with `heading`."""
    return click.option(*names, cls=Option, **more)


def flag(*names: str, **more: Any) -> Callable[[F], F]:
    """Declare an option without a value."""
    return option(*names, is_flag=True, **more)


root_option = option("--root", metavar="DIR", type=FILE, help="Use the directory tree DIR, not this host.")
json_option = flag("--json", "as_json", help="Print the result as JSON.")
dry_run_option = flag("--dry-run", help="Show what would be done; change nothing.")
yes_option = flag("--yes", "-y", help="Ask nothing.")
hosts_option = option(
    *("-H", "--hosts"),
    metavar="HOSTS",
    multiple=True,
    help="Run it on these hosts over ssh: host1,user@host2, gpu[1-8,11] or @FILE; paths are theirs.",
)
remote_option = option("--remote", metavar="PATH", help="The harpctl of those hosts.")
plugin_option = option(
    "--plugin", metavar="FILE", type=FILE, help="The plugin; else the one that comes with harpctl."
)
