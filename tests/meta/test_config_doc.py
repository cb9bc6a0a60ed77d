# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md has the tables of the source: every key and every variable, with what is expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "plugin" / "src" / "host"
DOC = ROOT / "docs" / "configuration.md"

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([A-Za-z_]\w*)|([(),])')


def source(name: str) -> str:
    return (HOST / name).read_text(encoding="utf-8")


def string_macros() -> dict[str, str]:
    """The `#define NAME "text"` lines that the tables use."""
    return dict(re.findall(r'^#define (HARP_EXPECT_\w+)\s+"([^"]*)"', source("option.h"), re.MULTILINE))


def x_macro(header: str, name: str) -> list[tuple[str, ...]]:
    """The rows of `#define NAME(X) X(a, "b", ...) ...`, strings joined and named strings replaced."""
    text = source(header).replace("\\\n", " ")
    match = re.search(rf"^#define {name}\(X\)(.*)$", text, re.MULTILINE)
    assert match, f"{header} has no table {name}"
    macros = string_macros()
    rows: list[tuple[str, ...]] = []
    for row in re.findall(r'X\(((?:[^()"]|"[^"]*")*)\)', match.group(1)):
        cells = [""]
        for string, word, mark in _TOKEN.findall(row):
            if mark == ",":
                cells.append("")
            else:
                cells[-1] += macros.get(word, word) if word else string
        rows.append(tuple(cells))
    assert len(rows) == match.group(1).count("X("), f"a row of {name} was not understood"
    return rows


def doc_table(first_column: str) -> list[list[str]]:
    """The rows of the one table whose heading begins with this column."""
    tables: list[list[list[str]]] = []
    rows: list[list[str]] | None = None
    for line in DOC.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            rows = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if rows is None:
            rows = []
            if cells[0] == first_column:
                tables.append(rows)
        elif not set(line) <= set("|-: "):
            rows.append(cells)
    assert len(tables) == 1, f"{len(tables)} tables begin with {first_column}"
    return tables[0]


def test_every_key_is_documented() -> None:
    in_source = [row[1:] for row in x_macro("conf.h", "HARP_CONF_KEYS")]
    in_doc = [tuple(row[:3]) for row in doc_table("section")]
    assert len(in_source) > 15
    assert in_doc == in_source


def test_every_variable_is_documented() -> None:
    in_source = [row[1:] for row in x_macro("env.h", "HARP_ENV")]
    in_doc = [(row[0].strip("`"), row[1]) for row in doc_table("variable")]
    assert len(in_source) >= 7
    assert in_doc == in_source


def test_rows_are_complete() -> None:
    for row in doc_table("section"):
        assert [bool(cell) for cell in row] == [True] * 5, row
    for row in doc_table("variable"):
        assert [bool(cell) for cell in row] == [True] * 3, row


@pytest.mark.parametrize(
    ("constant", "phrase"),
    [
        ("HARP_MTU_MIN", "a number from {} to 65536"),
        ("HARP_MTU_MAX", "a number from 576 to {}"),
        ("HARP_NUMA_MAX", "a number from 0 to {}"),
        ("HARP_GPU_MAX", "a number from 0 to {}"),
        ("HARP_SPEED_MAX_MBPS", "a number from 1 to {}"),
        ("HARP_QUEUES_MAX", "a number from 1 to {}"),
        ("HARP_MAX_PATHS", "a number from 1 to {}"),
        ("HARP_MAX_CORES", "1 to {} different core numbers such as 2-5,8"),
        ("HARP_PORT_MIN", "a range LOW-HIGH within {}-65535"),
        ("HARP_PEER_TIMEOUT_MAX_SEC", "whole seconds from 1 to {}"),
        ("HARP_PEER_TIMEOUT_DEFAULT_SEC", "{}"),
        ("HARP_ENI_ASSUMED_MBPS", "sysfs, ethtool, else {}"),
        ("HARP_CPU_MAX", "cores, each below {}; in thread mode each of them has an engine, see below"),
    ],
)
def test_bounds_of_the_code_are_those_of_the_text(constant: str, phrase: str) -> None:
    headers = "".join(source(name) for name in ("option.h", "config.h", "eni.h", "cpu.h"))
    match = re.search(rf"\b{constant} = (\d+)", headers)
    assert match, f"no constant {constant}"
    cells = [cell for row in doc_table("section") for cell in row]
    assert phrase.format(match.group(1)) in cells


def test_the_unconfigured_message_is_the_one_shown() -> None:
    code = source("config.c")
    match = re.search(r'"HARP is not configured: .*?dir\)', code, re.DOTALL)
    assert match, "the message was not found"
    message = "".join(re.findall(r'"([^"]*)"', match.group(0)))
    directory = re.search(r'HARP_CONF_DIR_DEFAULT "([^"]+)"', source("config.h"))
    assert directory
    shown = " ".join(DOC.read_text(encoding="utf-8").split())
    assert message.replace("%s", directory.group(1)) in shown
