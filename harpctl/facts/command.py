# SPDX-License-Identifier: Apache-2.0
"""`harpctl facts`: what harpctl knows of this host, or of a directory tree; it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harpctl.console import OUT, print_json, print_table
from harpctl.facts.collect import collect
from harpctl.facts.table import tables
from harpctl.host.host import open_host


def facts(
    *,
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="Look at a directory tree, not at this host.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Show what harpctl knows of this host: system, memory, GPUs, ENIs, plugin. Works without root."""
    found = collect(open_host(root))
    if as_json:
        print_json(found)
        return
    for number, table in enumerate(tables(found)):
        if number:
            OUT.print()
        print_table(table)
    for sentence in found.unknown:
        OUT.print(f"Unknown: {sentence}", style="yellow", markup=False)
