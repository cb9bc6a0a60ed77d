# SPDX-License-Identifier: Apache-2.0
"""Command-line options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Use the directory tree DIR, not this host.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "-H",
        "--hosts",
        metavar="HOSTS",
        help="Run it on these hosts over ssh: host1,user@host2, gpu[1-8,11] or @FILE; paths are theirs.",
    ),
]
RemotePath = Annotated[
    str | None, typer.Option("--remote", metavar="PATH", help="The harpctl of those hosts.")
]
PluginFile = Annotated[
    Path | None,
    typer.Option("--plugin", metavar="FILE", help="The plugin; else the one that comes with harpctl."),
]


def set_parameters(wrapper: Callable[..., object], parameters: Iterable[inspect.Parameter]) -> None:
    """Give a wrapper of a command these parameters, as typer reads them."""
    given = list(parameters)
    wrapper.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in given}
