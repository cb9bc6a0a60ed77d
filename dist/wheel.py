# SPDX-License-Identifier: Apache-2.0
"""The wheels: harpctl with plugin and harp-perf, the lab, the plugin for the environment of a job, lightcc.

Those with programs are tagged for the glibc that these need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dist.make import BUILT, HERE, PINS, TIME, TOP, copy_built, stage_harpctl, stage_lab
from dist.names import plain_version

CONSTRAINTS = (
    "PIP_CONSTRAINT",
    "PIP_BUILD_CONSTRAINT",
)  # what builds the wheel asks for it; newer pips take the second
GLIBC = "2_27"
ROOT_FILES = ("LICENSE", "NOTICE", "README.md")
USE_OF_HOOK = '\n[tool.hatch.build.targets.wheel.hooks.custom]\npath = "hook.py"\n'
HOOK = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-{tag}"
"""


def stage_harpctl_wheel(stage: Path, machine: str) -> str:
    """Lay out harpctl with the plugin and harp-perf; return the text of its project file."""
    copy_built(BUILT, stage_harpctl(stage), machine)
    init = stage / "harpctl" / "__init__.py"
    head = init.read_text(encoding="utf-8").split("__version__")[0]
    init.write_text(f'{head}__version__ = "{plain_version()}"\n', encoding="utf-8")
    return (TOP / "pyproject.toml").read_text(encoding="utf-8")


def stage_lab_wheel(stage: Path, machine: str) -> str:
    """Lay out the lab with its programs; return the text of its project file."""
    stage_lab(stage, machine)
    return (HERE / "lab.toml").read_text(encoding="utf-8").replace("@VERSION@", plain_version())


def stage_net_wheel(stage: Path, machine: str) -> str:
    """Lay out the plugin's package; return the text of its project file."""
    shutil.copytree(TOP / "harp_net", stage / "harp_net", ignore=shutil.ignore_patterns("__pycache__"))
    copy_built(("libnccl-net.so",), stage, machine)
    return (HERE / "net.toml").read_text(encoding="utf-8").replace("@VERSION@", plain_version())


def stage_net_torch_wheel(stage: Path) -> str:
    """Lay out the module that torch calls; return the text of its project file."""
    shutil.copy(TOP / "harp_net_torch.py", stage)
    return (HERE / "net_torch.toml").read_text(encoding="utf-8").replace("@VERSION@", plain_version())


def stage_lightcc_wheel(stage: Path) -> str:
    """Lay out lightcc and TI-ACC's names for it; return the text of its project file."""
    for name in ("lightcc", "tiacc_training"):
        shutil.copytree(TOP / name, stage / name, ignore=shutil.ignore_patterns("__pycache__"))
    return (HERE / "lightcc.toml").read_text(encoding="utf-8").replace("@VERSION@", plain_version())


def build_wheels(out: Path, machine: str) -> None:
    """Build the wheels with programs for a machine into a folder."""
    for stage_source in (stage_harpctl_wheel, stage_lab_wheel, stage_net_wheel):
        with tempfile.TemporaryDirectory(prefix="harp-wheel-") as name:
            stage = Path(name)
            _complete(stage, stage_source(stage, machine) + USE_OF_HOOK)
            tag = f"manylinux_{GLIBC}_{machine}"
            (stage / "hook.py").write_text(HOOK.format(tag=tag), encoding="utf-8")
            _build(stage, out)


def build_pure_wheels(out: Path) -> None:
    """Build the wheels without programs, which are for all machines."""
    for stage_source in (stage_net_torch_wheel, stage_lightcc_wheel):
        with tempfile.TemporaryDirectory(prefix="harp-wheel-") as name:
            stage = Path(name)
            _complete(stage, stage_source(stage))
            _build(stage, out)


def _complete(stage: Path, project: str) -> None:
    """Add the project file, licences and the readme."""
    shutil.copytree(TOP / "LICENSES", stage / "LICENSES")
    for name in ROOT_FILES:
        shutil.copy(TOP / name, stage / name)
    (stage / "pyproject.toml").write_text(project, encoding="utf-8")


def _build(stage: Path, out: Path) -> None:
    """Build the wheel of a source that was laid out."""
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
    shutil.copy(wheel, out / wheel.name)
