# SPDX-License-Identifier: Apache-2.0
"""Ends a command when something is wrong: message and hint on stderr, exit code, no traceback.

With --json the same is the JSON document on stdout.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import click
import msgspec

from harpctl.console import LAYOUT, escape_unprintable, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.hints import complete_hint

DEBUG: contextvars.ContextVar[bool] = contextvars.ContextVar("debug", default=False)
DISK_FULL = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
}  # the errors of a full disk: they are reported where they occur
JSON_NAME = "as_json"  # the parameter that --json sets


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The output with --json of a command that could not do its work."""

    ok: bool = False
    error: str
    hint: str = ""
    exit_code: int


@contextlib.contextmanager
def report_failures(context: click.Context) -> Iterator[None]:
    """Run a command whose error becomes a line and an exit code; with --debug it is raised."""
    as_json = context.params.get(JSON_NAME) is True
    try:
        yield
        sys.stdout.flush()
    except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _end_with_error("interrupted", "", int(ExitCode.INTERRUPTED), as_json=as_json)
    except Exception as error:
        if DEBUG.get():
            raise
        known = _harp_error(error)
        _end_with_error(known.message, complete_hint(known.hint, context), int(known.exit_code), as_json=as_json)


def _harp_error(error: Exception) -> HarpError:
    """Return an error that a person can read; an unexpected exception is reported as a defect."""
    if isinstance(error, HarpError):
        return error
    if isinstance(error, OSError) and error.filename is None and error.errno in DISK_FULL:
        _drop_output()
        return HarpError(
            f"standard output: {error.strerror}.",
            "What was done stays done. `df -h` shows which disk is full.",
        )
    return HarpError(
        f"{type(error).__name__}: {error}.",
        "This is a defect of harpctl. `harpctl --debug COMMAND` shows where it is; please report that.",
    )


def _drop_output() -> None:
    """Discard pending output, so that its failure is reported once."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _end_with_error(message: str, hint: str, exit_code: int, *, as_json: bool) -> NoReturn:
    with contextlib.suppress(OSError):
        click.echo(f"harpctl: {escape_unprintable(message, LAYOUT)}", err=True)
        if hint:
            click.echo(f"  {escape_unprintable(hint, LAYOUT)}", err=True)
    if as_json:
        print_json(Failure(error=message, hint=hint, exit_code=exit_code))
    raise click.exceptions.Exit(exit_code)


def open_streams() -> None:
    """Open /dev/null for standard streams that are closed: no file of ours may get their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115


def take_signals() -> None:
    """Make SIGHUP and SIGTERM interrupt the process as ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not so under nohup
            signal.signal(number, _raise_interrupt)


def _raise_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
