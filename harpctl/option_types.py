# SPDX-License-Identifier: Apache-2.0
"""Command-line options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Use the directory tree DIR, not this host.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
