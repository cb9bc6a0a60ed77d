# SPDX-License-Identifier: Apache-2.0
"""The files of a folder of plugin/src call each other in one direction: no file calls itself through others.

A file calls another if it names a function that the other defines. A function that a header defines inline
counts as part of each file that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "plugin" / "src"
FOLDERS = sorted(p.name for p in SRC.iterdir() if p.is_dir())

NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)
WORD = re.compile(r"\b[a-z]\w+\b")
# clang-format begins each function in the first column and ends it with a brace there.
FUNCTION = re.compile(
    r"^(?P<head>[a-zA-Z_][^;{}=]*?\b(?P<name>\w+)\([^;{}]*\)) \{(?P<body>.*?)^\}", re.DOTALL | re.MULTILINE
)


def code_of(text: str) -> str:
    """Return the text without comments, strings and lines of the preprocessor."""
    return NO_CODE.sub("", text)


def functions_of(text: str) -> dict[str, tuple[bool, set[str]]]:
    """Return the functions that a file defines: whether other files can call them, and the words in them."""
    return {
        match["name"]: ("static" not in match["head"].split(), set(WORD.findall(match["body"])))
        for match in FUNCTION.finditer(code_of(text))
    }


def calls_between(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Return for each .c file the other .c files that it calls."""
    defined_in: dict[str, str] = {}
    inline: dict[str, set[str]] = {}
    for name, text in files.items():
        for function, (is_public, words) in functions_of(text).items():
            if name.endswith(".h"):
                inline[function] = words
            elif is_public:
                defined_in[function] = name
    graph = {}
    for name, text in files.items():
        if name.endswith(".h"):
            continue
        words = set(WORD.findall(code_of(text)))
        todo = words & inline.keys()
        while todo:
            more = inline[todo.pop()] - words
            words |= more
            todo |= more & inline.keys()
        graph[name] = {defined_in[word] for word in words & defined_in.keys()} - {name}
    return graph


def find_circles(graph: Mapping[str, set[str]]) -> set[str]:
    """Return the files that reach themselves through others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            new = graph[todo.pop()] - found
            found |= new
            todo += new
        return found

    return {name for name in graph if name in reached(name)}


def files_of(folder: str) -> dict[str, str]:
    return {
        str(p.relative_to(SRC / folder)): p.read_text()
        for p in sorted((SRC / folder).rglob("*"))
        if p.suffix in {".c", ".h"}
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_call_in_one_direction(folder: str) -> None:
    graph = calls_between(files_of(folder))
    found = find_circles(graph)
    assert not found, {name: graph[name] & found for name in found}


A_CALLS_B = "int harp_a(void) {\n  return harp_b();\n}\n"
B_CALLS_NONE = "/* harp_a() */\nint harp_b(void) {\n  return 1;\n}\n"
B_CALLS_A = "int harp_b(void) {\n  return harp_a();\n}\n"
C_INLINE_CALLS_A = "static inline int harp_c(void) {\n  return harp_a();\n}\n"
B_CALLS_C = "int harp_b(void) {\n  return harp_c();\n}\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.c": A_CALLS_B, "b.c": B_CALLS_NONE}, set()),
        ({"a.c": A_CALLS_B, "b.c": B_CALLS_A}, {"a.c", "b.c"}),
        ({"a.c": A_CALLS_B, "b.c": B_CALLS_C, "c.h": C_INLINE_CALLS_A}, {"a.c", "b.c"}),
        ({"a.c": A_CALLS_B, "b.c": B_CALLS_C}, set()),
    ],
)
def test_a_circle_is_found(files: dict[str, str], expected: set[str]) -> None:
    assert find_circles(calls_between(files)) == expected
