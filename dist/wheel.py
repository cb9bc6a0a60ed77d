# SPDX-License-Identifier: Apache-2.0
"""The wheel: harpctl with the plugin and harp-perf in it, tagged for the glibc that these need."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dist.make import BUILD, BUILT, PINS, TIME, TOP
from dist.names import plain_version
from harpctl.build_info import PACKAGED, WIRE_DOC, build_version

CONSTRAINTS = (
    "PIP_CONSTRAINT",
    "PIP_BUILD_CONSTRAINT",
)  # for what builds the wheel; newer pips take the second
GLIBC = "2_27"
ROOT_FILES = ("LICENSE", "NOTICE", "README.md")
HOOK = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-{tag}"
"""


def stage_wheel(stage: Path) -> None:
    """Lay out the source of the wheel: the package, its data, and a project file with version and tag."""
    shutil.copytree(TOP / "harpctl", stage / "harpctl", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copytree(TOP / "LICENSES", stage / "LICENSES")
    for name in ROOT_FILES:
        shutil.copy(TOP / name, stage / name)
    data = stage / "harpctl" / "data"
    data.mkdir()
    for name in BUILT:
        shutil.copy(BUILD / name, data / name)
        (data / name).chmod(0o755)
    shutil.copy(TOP / "docs" / WIRE_DOC, data / WIRE_DOC)
    (data / PACKAGED).write_text(build_version() + "\n", encoding="utf-8")
    init = stage / "harpctl" / "__init__.py"
    head = init.read_text(encoding="utf-8").split("__version__")[0]
    init.write_text(f'{head}__version__ = "{plain_version()}"\n', encoding="utf-8")
    text = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    hook = '\n[tool.hatch.build.targets.wheel.hooks.custom]\npath = "hook.py"\n'
    (stage / "pyproject.toml").write_text(text + hook, encoding="utf-8")
    tag = f"manylinux_{GLIBC}_{platform.machine()}"
    (stage / "hook.py").write_text(HOOK.format(tag=tag), encoding="utf-8")


def build_wheel(out: Path) -> Path:
    """Build the wheel into a folder; return its path."""
    with tempfile.TemporaryDirectory(prefix="harp-wheel-") as name:
        stage = Path(name)
        stage_wheel(stage)
        argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*argv, "--wheel-dir", str(stage / "out"), str(stage)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(TIME), **dict.fromkeys(CONSTRAINTS, PINS.as_uri())},
        )
        if done.returncode:
            raise SystemExit(f"dist: the wheel can't be built:\n{done.stderr.strip()}")
        (wheel,) = (stage / "out").glob("*.whl")
        return Path(shutil.copy(wheel, out / wheel.name))
