# SPDX-License-Identifier: Apache-2.0
"""docs/reference/statistics.md has every table of the statistics file, and every reason of a stall."""

from __future__ import annotations

import re

from harpctl.stats import layout
from tests.conftest import PLUGIN_DIR, ROOT
from tests.meta.test_docs import join_lines, read_document

LAYOUT = (PLUGIN_DIR / "src" / "host" / "stats_layout.h").read_text(encoding="utf-8")
DOC = ROOT / "docs" / "reference" / "statistics.md"
TABLES = ("engine", "eni", "session", "path", "stream")


def macro_body(source: str, name: str) -> str:
    """Return the body of `#define NAME(...) ...`, lines joined."""
    match = re.search(rf"^#define {name}\([^)]*\)(.*)$", source.replace("\\\n", " "), re.MULTILINE)
    assert match, name
    return match[1]


def test_every_table_is_documented() -> None:
    rows = re.findall(r"X\([A-Z]+, (\w+), (\d+)\)", macro_body(LAYOUT, "HARP_STATS_TABLES"))
    assert tuple(name for name, _ in rows) == TABLES
    (stated,) = re.findall(r"at most so many entries: (.*?)\. ", join_lines(read_document(DOC)))
    assert re.findall(r"(\w+) (\d+)", stated) == rows


def test_every_reason_of_a_stall_is_documented() -> None:
    source = (PLUGIN_DIR / "src" / "engine" / "watch" / "stall.c").read_text(encoding="utf-8")
    names = re.findall(r'\[HARP_STALL_\w+\] = "([^"]*)"', source.split("names[] = {")[1].split("};")[0])
    assert len(names) >= 6
    documented = re.findall(r"^- \*\*(.*?)\*\*:", read_document(DOC), re.MULTILINE)
    assert documented == [name for name in names if name]
    assert all(len(name) < 24 for name in names)  # as long as the field


def test_the_header_is_read_as_it_is_written() -> None:
    body = LAYOUT.split("struct harp_stats_header {")[1].split("struct harp_stats_table_header {")[0]
    codes = {"int64_t": "q", "uint32_t": "I"}
    pattern = "="
    for words, names in re.findall(r"^\s+(?:_Atomic )?(char|uint32_t|int64_t) ([^;]+);", body, re.MULTILINE):
        for name in names.split(","):
            size = re.search(r"\[(\d+)\]", name)
            pattern += f"{size[1]}s" if size else codes[words]
    assert pattern == layout.HEADER.format
    assert re.search(rf"HARP_STATS_FORMAT = {layout.FORMAT},", LAYOUT)
    assert f'#define HARP_STATS_MAGIC "{layout.MAGIC.decode()}"' in LAYOUT
