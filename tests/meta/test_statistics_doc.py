# SPDX-License-Identifier: Apache-2.0
"""docs/reference/statistics.md has every field of the statistics file, with its unit and meaning."""

from __future__ import annotations

import re

import pytest

from harpctl.stats import layout
from tests.conftest import PLUGIN_DIR, ROOT
from tests.meta.test_docs import table, tables

LAYOUT = (PLUGIN_DIR / "src" / "host" / "stats_layout.h").read_text(encoding="utf-8")
COUNTERS = (PLUGIN_DIR / "src" / "base" / "counters.h").read_text(encoding="utf-8")
DOC = ROOT / "docs" / "reference" / "statistics.md"
TABLES = ("engine", "eni", "session", "path", "stream")


def macro(source: str, name: str) -> str:
    """Return the body of `#define NAME(...) ...`, lines joined."""
    match = re.search(rf"^#define {name}\([^)]*\)(.*)$", source.replace("\\\n", " "), re.MULTILINE)
    assert match, name
    return match[1]


def source_rows(name: str) -> list[list[str]]:
    """Return name, unit and meaning of the fields of a table, as the source has them."""
    rows = []
    for kind, field, given, text in re.findall(
        r'([CGT])\((\w+), "?([^",]*)"?, "([^"]*)"\)', macro(LAYOUT, f"HARP_STATS_{name.upper()}")
    ):
        unit = given.removeprefix("-")
        units = {"C": unit, "G": f"gauge, {unit}" if unit else "gauge", "T": "text"}
        rows.append([f"`{field}`", units[kind], text])
    if name == "engine":
        counters = re.findall(r'X\((\w+), "([^"]*)", "([^"]*)"\)', macro(COUNTERS, "HARP_COUNTERS"))
        rows += [[f"`{field}`", unit, text] for field, unit, text in counters]
        drops = re.findall(r'X\((\w+), "([^"]*)"\)', macro(COUNTERS, "HARP_DROPS"))
        rows += [[f"`drop_{field}`", "packets", text] for field, text in drops]
    return rows


def section(name: str) -> str:
    text = DOC.read_text(encoding="utf-8")
    return text.split(f"\n### {name}\n")[1].split("\n## ")[0].split("\n### ")[0]


@pytest.mark.parametrize("name", TABLES)
def test_every_field_is_documented(name: str) -> None:
    assert len(source_rows(name)) >= 8
    (found,) = tables(section(name))
    assert found[0] == ["field", "unit", "meaning"]
    assert found[1:] == source_rows(name)


def test_every_table_is_documented() -> None:
    rows = re.findall(r"X\([A-Z]+, (\w+), (\d+)\)", macro(LAYOUT, "HARP_STATS_TABLES"))
    assert tuple(name for name, _ in rows) == TABLES
    assert [[name, most] for name, most in rows] == [
        row[:2] for row in table(DOC.read_text(encoding="utf-8"), "table", "entries at most")
    ]


def test_every_reason_of_a_stall_is_documented() -> None:
    source = (PLUGIN_DIR / "src" / "engine" / "watch" / "stall.c").read_text(encoding="utf-8")
    names = re.findall(r'\[HARP_STALL_\w+\] = "([^"]*)"', source.split("names[] = {")[1].split("};")[0])
    assert len(names) >= 6
    documented = [row[0] for row in table(DOC.read_text(encoding="utf-8"), "`stall`", "what was seen")]
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
