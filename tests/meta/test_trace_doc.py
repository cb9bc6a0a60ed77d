# SPDX-License-Identifier: Apache-2.0
"""docs/reference/trace.md has the parts of the flight recorder; its layout is read as it is written."""

from __future__ import annotations

import re

from harpctl.trace import rings
from tests.conftest import PLUGIN_DIR, ROOT

TRACE = (PLUGIN_DIR / "src" / "base" / "trace.h").read_text(encoding="utf-8").replace("\\\n", " ")
LAYOUT = (PLUGIN_DIR / "src" / "host" / "stats_layout.h").read_text(encoding="utf-8")
DOC = (ROOT / "docs" / "reference" / "trace.md").read_text(encoding="utf-8")
CODES = {"uint64_t": "Q", "int64_t": "q", "harp_ns": "Q", "uint32_t": "I", "int32_t": "i"}
CODES |= {"uint16_t": "H", "uint8_t": "B"}


def fields_of(source: str, struct: str) -> list[tuple[str, str]]:
    """Return name and struct code of the fields of a struct."""
    end = "\n  } rings" if "rings" in struct else "\n};"
    body = source.split(f"struct {struct} {{")[1].split(end, maxsplit=1)[0]
    found = []
    for words, names in re.findall(r"^\s+(?:_Atomic )?(char|\w+_t|harp_ns) ([^;]+);", body, re.MULTILINE):
        for name in names.split(","):
            length = re.search(r"\[(\d+)\]", name)
            code = f"{length[1]}{'s' if words == 'char' else 'x'}" if length else CODES[words]
            found.append((name.split("[")[0].strip(), code))
    return found


def read_events() -> list[list[str]]:
    """Return name, part and text of each event."""
    source = TRACE
    for name, texts in re.findall(r'#define (HARP_TRACE_\w+)[\s\\]+((?:"[^"]*"[\s\\]*)+)', TRACE):
        words = "".join(re.findall(r'"([^"]*)"', texts))
        source = re.sub(rf"(?<!define )\b{name}\b", f'"{words}"', source)
    (body,) = re.findall(r"#define HARP_EVENTS\(X\)(.*)", source)
    found = re.findall(r'X\((\w+), (\w+),\s*((?:"[^"]*"\s*)+)\)', body)
    return [[name, part, "".join(re.findall(r'"([^"]*)"', text))] for name, part, text in found]


def test_the_parts_are_documented() -> None:
    slots = dict(re.findall(r"HARP_TRACE_(\w+)_SLOTS = (\d+)", TRACE))
    assert tuple(slots) == rings.PARTS
    assert re.findall(r"^- ([A-Z]+) \((\d+)(?: entries)?\):", DOC, re.MULTILINE) == list(slots.items())


def test_the_layout_is_read_as_it_is_written() -> None:
    for source, struct, reader in (
        (LAYOUT, "harp_stats_rings_header", rings.RINGS),
        (TRACE, "harp_trace_entry", rings.ENTRY),
        (TRACE, "harp_trace_head", rings.HEAD),
    ):
        assert "=" + "".join(code for _, code in fields_of(source, struct)) == reader.format, struct


def test_the_words_of_a_stall_are_those_of_the_statistics() -> None:
    source = (PLUGIN_DIR / "src" / "engine" / "watch" / "stall.c").read_text(encoding="utf-8")
    names = re.findall(r'\[HARP_STALL_\w+\] = "([^"]*)"', source.split("names[] = {")[1].split("};")[0])
    (text,) = [text for name, _, text in read_events() if name == "STALL"]
    assert text.split("{a:nothing|")[1].rstrip("}").split("|") == names[1:]
