# SPDX-License-Identifier: Apache-2.0
"""The version of this build of harpctl: the same as that of the plugin of the same source."""

from __future__ import annotations

import functools
import subprocess
from importlib import resources
from pathlib import Path

from harpctl import __version__
from harpctl.errors import ExitCode, HarpError

PACKAGED = "version"  # a file of harpctl/data that a package brings
PLUGIN_DIR = Path(__file__).resolve().parents[1] / "plugin"  # a checkout's
VERSION_SCRIPT = PLUGIN_DIR / "version.sh"
BUILD_DIR = PLUGIN_DIR / "build"


@functools.cache
def build_version() -> str:
    """Return the version with commits and hash: of the package, else of the checkout; else without them."""
    packaged = resources.files("harpctl") / "data" / PACKAGED
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8").strip()
    if VERSION_SCRIPT.is_file():
        done = subprocess.run(["sh", str(VERSION_SCRIPT)], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return __version__


def built_file(name: str, package: str = "harpctl") -> Path:
    """Return where a built file is: in the data of a Python package, else in the checkout's build folder."""
    packaged = Path(str(resources.files(package))) / "data" / name
    if packaged.is_file() or (BUILD_DIR / name).is_file():
        return packaged if packaged.is_file() else BUILD_DIR / name
    raise HarpError(
        f"{BUILD_DIR / name} does not exist.",
        "Build it with `./harp_setup build` (or `make -C plugin all`).",
        ExitCode.MISSING,
    )
