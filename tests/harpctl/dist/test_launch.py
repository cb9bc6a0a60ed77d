# SPDX-License-Identifier: Apache-2.0
"""The launcher on a host where no Python fits."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from dist.make import stage_launcher


def test_without_any_python_that_fits_it_names_what_is_needed(bare: dict[str, str], tmp_path: Path) -> None:
    for tag in ("cp310", "cp311"):
        (tmp_path / "tool" / "ext" / tag).mkdir(parents=True)
    stage_launcher(tmp_path / "tool" / "bin", platform.machine())
    program = tmp_path / "tool" / "bin" / "harpctl"
    done = subprocess.run([program, "doctor"], env=bare, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert "it needs one of Python 3.10 3.11 and this host has no python3" in done.stderr
    assert "Install one" in done.stderr
    old = Path(bare["PATH"]) / "python3"
    old.write_text("#!/bin/sh\n[ \"$1\" = -V ] && echo 'Python 3.6.8'\n")
    old.chmod(0o755)
    env = {**bare, "PATH": f"{bare['PATH']}{os.pathsep}/nowhere"}
    try:
        done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=60, check=False)
    finally:
        old.unlink()
    assert "this host has Python 3.6.8" in done.stderr


def test_on_another_kind_of_machine_it_names_the_package(bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tool" / "ext").mkdir(parents=True)
    here = platform.machine()
    stage_launcher(tmp_path / "tool" / "bin", "riscv64")
    program = tmp_path / "tool" / "bin" / "harpctl"
    done = subprocess.run([program], env=bare, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert f"this package is for riscv64, and this host is {here}" in done.stderr
    assert f"Install the one for {here}." in done.stderr
