# SPDX-License-Identifier: Apache-2.0
"""Which build of harpctl this is: the same version that the plugin of the same source says."""

from __future__ import annotations

import functools
import subprocess
from importlib import resources
from pathlib import Path

from harpctl import __version__

PACKAGED = "version"  # a file of harpctl/data that a package brings
TELLS = Path(__file__).resolve().parents[1] / "plugin" / "version.sh"  # in a checkout


@functools.cache
def build_version() -> str:
    """Return the version with commits and hash: of the package, else of the checkout; else without them."""
    packaged = resources.files("harpctl") / "data" / PACKAGED
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8").strip()
    if TELLS.is_file():
        done = subprocess.run(["sh", str(TELLS)], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return __version__
