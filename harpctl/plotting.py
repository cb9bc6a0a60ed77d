# SPDX-License-Identifier: Apache-2.0
"""What a plot needs: matplotlib, which is optional, and a file name with a known suffix."""

from __future__ import annotations

import sys
from pathlib import Path

from harpctl.errors import ExitCode, HarpError

SUFFIXES = (".png", ".svg", ".pdf")


def require_plot(file: Path) -> None:
    """Raise HarpError where this plot cannot be drawn, before long work for it."""
    if file.suffix.lower() not in SUFFIXES:
        raise HarpError(
            f"{file} is not the name of a plot file.", f"It ends in {', '.join(SUFFIXES)}.", ExitCode.USAGE
        )
    try:
        import matplotlib as mpl  # noqa: PLC0415  (optional, and slow to load)
    except ImportError:
        raise HarpError(
            "Drawing a plot needs matplotlib.",
            f"Of a checkout or a wheel: {sys.executable} -m pip install matplotlib",
            ExitCode.MISSING,
        ) from None
    mpl.use("Agg")
