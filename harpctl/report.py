"""How a command ends when something is wrong: message and hint on stderr, exit code, no traceback."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from harpctl.errors import HarpError

P = ParamSpec("P")
R = TypeVar("R")

DEBUG: contextvars.ContextVar[bool] = contextvars.ContextVar("debug", default=False)


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that a HarpError is printed and gives the exit code; with --debug it passes."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except HarpError as error:
            if DEBUG.get():
                raise
            typer.echo(f"harpctl: {error.message}", err=True)
            if error.hint:
                typer.echo(f"  {error.hint}", err=True)
            raise typer.Exit(int(error.exit_code)) from None
        except KeyboardInterrupt:
            typer.echo("harpctl: interrupted", err=True)
            raise typer.Exit(130) from None

    return wrapper
