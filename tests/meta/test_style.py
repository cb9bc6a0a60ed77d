# SPDX-License-Identifier: Apache-2.0
"""The Python of the project is formatted, linted and typed; nothing in the tree depends on one machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Where checkouts and caches of one machine lie; /root and /home are places that harpctl knows on every host.
# Spelled in parts, or this file would find itself.
MACHINE_PATHS = re.compile("|".join(("/" + "work/", "/" + "Users/", "/" + r"root/\.pyenv", "/" + "opt/pypi")))
MACHINE_FILES = {"LICENSE"}


def tracked_files(root: Path) -> list[Path]:
    """List the files that git tracks; in a tree without git, all that could be."""
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [root / name for name in done.stdout.decode().split("\0") if name and (root / name).is_file()]


@pytest.mark.parametrize(
    "command",
    [
        "ruff check",
        "ruff format --check",
        "mypy --strict harpctl harplab harp_net harp_net_torch.py lightcc tiacc_training tests",
    ],
)
def test_python_is_clean(root: Path, command: str) -> None:
    tool, *words = command.split()
    done = subprocess.run(
        [sys.executable, "-m", tool, *words], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_no_file_names_a_machines_own_path(root: Path) -> None:
    found = []
    for file in tracked_files(root):
        if file.name in MACHINE_FILES:
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if MACHINE_PATHS.search(line):
                found.append(f"{file.relative_to(root)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)
