# SPDX-License-Identifier: Apache-2.0
"""Names of version and machine in packages; a machine is named as uname does."""

from __future__ import annotations

import platform

from harpctl.build_info import build_version

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
HERE = platform.machine()
MACHINES = (HERE, *sorted(DEBIAN.keys() - {HERE}))  # the machines that packages are made for


def plain_version() -> str:
    """Return the version in the form that Python, Debian and rpm all take: 1.0.0+12.gabc1234."""
    base, _dash, rest = build_version().partition("-")
    return f"{base}+{rest.replace('-', '.')}" if rest else base


def triplet(machine: str = HERE) -> str:
    """Return the folder of libraries of the Debian family."""
    return f"{machine}-linux-gnu"
