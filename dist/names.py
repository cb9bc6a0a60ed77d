# SPDX-License-Identifier: Apache-2.0
"""How packages name version and machine."""

from __future__ import annotations

import platform

from harpctl.build_info import build_version

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
TRIPLETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}


def plain_version() -> str:
    """Return the version in the form that Python, Debian and rpm all take: 0.2.0+12.gabc1234."""
    base, _dash, rest = build_version().partition("-")
    return f"{base}+{rest.replace('-', '.')}" if rest else base


def debian_machine() -> str:
    """Return Debian's name of this machine's architecture."""
    return DEBIAN[platform.machine()]


def triplet() -> str:
    """Return the folder of libraries of the Debian family."""
    return TRIPLETS[platform.machine()]
