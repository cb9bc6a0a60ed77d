# SPDX-License-Identifier: Apache-2.0
"""The HARP plugin for NCCL, for the Python environment of a job: `NCCL_NET_PLUGIN=$(python -m harp_net)`.

Needs nothing but Python 3.8. The library lies where PyTorch's own libraries search (`nvidia/nccl/lib` beside
this package), so that in an environment with PyTorch from PyPI `NCCL_NET_PLUGIN=harp` finds it, too.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = HERE.parent / "nvidia" / "nccl" / "lib" / "libnccl-net-harp.so"
BUILT = HERE.parent / "plugin" / "build" / "libnccl-net.so"  # a checkout's


class UnusableError(Exception):
    """The library is not there, or cannot be loaded here; the text is one line that says what to do."""


def library() -> Path:
    """Return the path of the plugin's library. Raises UnusableError where it is missing or does not load."""
    path = next((path for path in (INSTALLED, BUILT) if path.is_file()), None)
    if path is None:
        raise UnusableError(
            f"{INSTALLED} is missing; install the package anew: pip install --force-reinstall harp-net"
        )
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise UnusableError(
            f"the plugin cannot be loaded here ({error}); it is for Linux with glibc 2.27 or newer, and each "
            "processor has a wheel of its own"
        ) from error
    return path
