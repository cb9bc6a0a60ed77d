# SPDX-License-Identifier: Apache-2.0
"""Stores the plugin of this commit as that of its release, built for old systems.

./harp_setup build && .venv/bin/python -m tests.versions
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harpctl.build_info import build_version
from tests.versions.stored import facts_of, store_library

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "plugin/build/portable/libnccl-net.so"


def main() -> int:
    """Build and store it; return the exit code."""
    if subprocess.run([ROOT / "harp_setup", "build", "--portable"], check=False).returncode:
        return 1
    if facts_of(LIBRARY).version != build_version():
        print(f"{LIBRARY} is not of this commit: is there no compiler for an old glibc?", file=sys.stderr)
        return 1
    try:
        file = store_library(LIBRARY)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
