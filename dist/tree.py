# SPDX-License-Identifier: Apache-2.0
"""The files of a host: what the Debian and the rpm package and the layer hold.

The library has its second names, for NCCL and for RCCL, so that no other plugin is touched; `harpctl install
--name plain` gives it the plain ones. harpctl runs with its own Python packages, by the host's Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from dist.make import (
    BUILT,
    HERE,
    LAB_BUILT,
    TAGS,
    TIME,
    TOP,
    built,
    stage_harpctl,
    stage_lab,
    stage_launcher,
    stage_packages,
)
from dist.manual import stage_completion, stage_pages
from dist.names import HERE as THIS
from dist.names import triplet
from harpctl.facts.plugin_files import NAME, RCCL_SUFFIXED, SUFFIXED

HOME = "usr/lib/harp"
PROGRAM = "usr/bin/harpctl"
DOCS = "usr/share/doc/harp"
DEBUG = "usr/lib/debug/.build-id"  # where debuggers look, by the first two digits of a build id
JOURNAL = "/var/lib/harp/journal"
LAUNCHER = """\
#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
HARPCTL_PROGRAM=/{program} exec /{home}/bin/harpctl "$@"
"""


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def stage_tree(stage: Path, cache: Path, folder: str, machine: str) -> None:
    """Lay out the files of a host, with the library in a folder of it: what packages and layer hold."""
    home = stage / HOME
    home.mkdir(parents=True)
    stage_packages(TAGS, home, cache, machine)
    data = stage_harpctl(home / "app")
    libraries = stage / folder
    libraries.mkdir(parents=True)
    for name in (SUFFIXED, RCCL_SUFFIXED):
        shutil.copy(built(machine) / NAME, libraries / name)
    (data / NAME).symlink_to(os.path.relpath(libraries / SUFFIXED, data))
    (stage / "usr" / "bin").mkdir()
    shutil.copy(built(machine) / "harp-perf", stage / "usr" / "bin" / "harp-perf")
    (data / "harp-perf").symlink_to(os.path.relpath(stage / "usr" / "bin" / "harp-perf", data))
    stage_launcher(home / "bin", machine)
    shutil.copy(HERE / "run.py", home / "run.py")
    shutil.copy(HERE / "in-image", home / "in-image")
    write_text(stage / PROGRAM, LAUNCHER.format(program=PROGRAM, home=HOME), 0o755)
    for name in ("NOTICE", "CHANGELOG.md"):
        (stage / DOCS).mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, stage / DOCS / name)
    stage_pages(stage, of_lab=False)
    stage_completion(stage)
    make_reproducible(stage)


def stage_lab_tree(stage: Path, machine: str) -> None:
    """Lay out what the lab adds to the files of a host."""
    stage_lab(stage / HOME / "app", machine)
    stage_pages(stage, of_lab=True)
    make_reproducible(stage)


def objcopy(machine: str) -> str:
    """Return the name of the objcopy that knows a machine's files."""
    return "objcopy" if machine == THIS else f"{triplet(machine)}-objcopy"


def stage_debug(stage: Path, machine: str) -> list[str]:
    """Lay out the debug information, split off from what is in the other packages; return the build ids."""
    ids = {name: build_id(built(machine) / name) for name in (*BUILT, *LAB_BUILT)}
    for name, found in ids.items():
        target = stage / DEBUG / found[:2] / f"{found[2:]}.debug"
        target.parent.mkdir(parents=True, exist_ok=True)
        argv = [objcopy(machine), "--only-keep-debug", str(built(machine) / f"{name}.debug"), str(target)]
        subprocess.run(argv, check=True)
    make_reproducible(stage)
    return list(ids.values())


def build_id(file: Path) -> str:
    """Return the build id of a program or library."""
    with file.open("rb") as stream:
        notes = [section for section in ELFFile(stream).iter_sections() if isinstance(section, NoteSection)]
        found = [n["n_desc"] for s in notes for n in s.iter_notes() if n["n_type"] == "NT_GNU_BUILD_ID"]
    if not found:
        raise SystemExit(f"dist: {file} has no build id; build it: ./harp_setup build")
    return str(found[0])


def make_reproducible(stage: Path) -> None:
    """Give all files of a folder the same times, and modes that depend on nothing but who may run them."""
    for path in [stage, *stage.rglob("*")]:
        if not path.is_symlink():
            is_open = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_open else 0o644)
            os.utime(path, (TIME, TIME))
