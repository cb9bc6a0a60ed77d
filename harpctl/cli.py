"""The command line: options common to all commands, and errors turned into one readable line.

A command's own module holds what it does; this file only names the commands.
"""

from __future__ import annotations

from typing import Annotated

import typer

from harpctl import __version__
from harpctl.bench.command import bench
from harpctl.report import DEBUG, reports_errors
from harpctl.setup.command import setup

app = typer.Typer(
    name="harpctl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harpctl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Set up, measure and look after HARP, a user-space transport for NCCL."""
    del version
    DEBUG.set(debug)


for _name, _command in (
    ("setup", setup),
    ("bench", bench),
):
    app.command(_name)(reports_errors(_command))


def main() -> None:
    """Run the program; the console script's entry."""
    app()
