# SPDX-License-Identifier: Apache-2.0
"""Shared by all plots: matplotlib, which is optional, names with a known suffix, and saving."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harpctl.errors import ExitCode, HarpError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def save_figure(file: Path, figure: Figure, dpi: int = 120) -> None:
    """Write a picture, and forget it."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    try:
        figure.savefig(file, dpi=dpi)
    except OSError as error:
        raise HarpError(f"{file} can't be written: {error.strerror}.", "Name a file that you may write.") from None
    finally:
        plt.close(figure)
