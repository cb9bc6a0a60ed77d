# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence, and the text of each licence named is in the tree."""

from __future__ import annotations

import re
from pathlib import Path

from tests.meta.test_style import tracked_files

SOURCES = {".c", ".h", ".map", ".mk", ".py", ".sh", ".toml"}
SOURCE_NAMES = {"Makefile", "harp_setup", "run"}
DATA = ("tests/trees/", "tests/fuzz/corpus/")
TAG = re.compile(r"SPDX-License-Identifier: ([A-Za-z0-9.+ -]+?)(?: \*/)?\n")
LINES = 2  # the tag is in the first one, or below a line that names the interpreter
KERNEL_PROGRAM = {"plugin/src/io/xdp/program.c", "plugin/src/io/xdp/program.h"}


def licences_of_files(root: Path) -> dict[str, str]:
    """Return the licence of each source file by its path; "" where it names none."""
    found = {}
    for file in tracked_files(root):
        name = file.relative_to(root).as_posix()
        if name.startswith(DATA) or not (file.suffix in SOURCES or file.name in SOURCE_NAMES):
            continue
        with file.open(encoding="utf-8") as stream:
            match = TAG.search("".join(stream.readline() for _line in range(LINES)))
        found[name] = match[1] if match else ""
    return found


def test_every_source_names_its_licence(root: Path) -> None:
    found = licences_of_files(root)
    bare = sorted(name for name, licence in found.items() if not licence)
    assert not bare, f"begin these with SPDX-License-Identifier: Apache-2.0: {bare}"
    others = {name for name, licence in found.items() if licence != "Apache-2.0"}
    assert others == KERNEL_PROGRAM
    assert {found[name] for name in others} == {"MIT OR GPL-2.0-only"}


def test_the_licence_of_the_kernel_program_is_the_same(root: Path) -> None:
    assert '"Dual MIT/GPL"' in (root / "plugin/src/io/xdp/bpf.c").read_text(encoding="utf-8")


def test_licences_are_in_the_tree(root: Path) -> None:
    assert "Apache License" in (root / "LICENSE").read_text(encoding="utf-8")
    named = set(re.split(r" (?:OR|AND) ", " OR ".join(licences_of_files(root).values())))
    assert named - {"Apache-2.0"} == {file.stem for file in (root / "LICENSES").iterdir()}
