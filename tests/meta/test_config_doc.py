# SPDX-License-Identifier: Apache-2.0
"""harpctl's table of settings and docs/reference/configuration.md are made from the plugin's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.meta.config_doc import FILE, LINKS, ROOT, TABLE, generate_document, load_rows

HOST = ROOT / "plugin" / "src" / "host"
WRITE = "write it anew: make -C plugin settings"


def test_harpctls_table_is_the_plugins(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    makefile = (ROOT / "plugin" / "Makefile").read_text(encoding="utf-8")
    sources = re.search(r"^SETTINGS_SRC := (.*)$", makefile, re.MULTILINE)
    assert sources
    program = tmp_path / "settings"
    argv = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-Isrc", "-o", str(program), *sources[1].split()]
    subprocess.run(argv, cwd=ROOT / "plugin", check=True)
    written = subprocess.run([program], capture_output=True, check=True)
    assert TABLE.read_bytes() == written.stdout, WRITE


def test_the_document_lists_the_settings() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert text == generate_document(text), WRITE


def test_every_link_has_its_words() -> None:
    meanings = " ".join(row["help"] for row in load_rows())
    assert [words for words in LINKS if words not in meanings] == []


def test_every_variable_of_the_code_is_in_the_table() -> None:
    """What is read from the environment is read by the table; a name elsewhere stands in a message."""
    known = {row["variable"] for row in load_rows()}
    named = {
        name
        for file in (ROOT / "plugin" / "src").rglob("*.c")
        for name in re.findall(r'"(HARP_[A-Z_]+)"', file.read_text(encoding="utf-8"))
    }
    assert named <= known


@pytest.mark.parametrize(
    ("header", "constant", "key", "phrase"),
    [
        ("eni.h", "HARP_ENI_ASSUMED_MBPS", "speed_mbps", "sysfs, ethtool, else {}"),
        ("cpu.h", "HARP_CPU_MAX", "cores", "cores, each below {};"),
    ],
)
def test_numbers_in_words_are_those_of_the_code(header: str, constant: str, key: str, phrase: str) -> None:
    match = re.search(rf"\b{constant} = (\d+)", (HOST / header).read_text(encoding="utf-8"))
    assert match, f"no constant {constant}"
    (row,) = [row for row in load_rows() if row["key"] == key]
    assert phrase.format(match[1]) in f"{row['otherwise']} {row['help']}"
