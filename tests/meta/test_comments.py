# SPDX-License-Identifier: Apache-2.0
"""Comments are sentences: none begins with a word that needs a noun before it, as in "of the peer".

Items of lists in them are indented to their end.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.test_style import tracked_files

FRAGMENT = re.compile(r"(of|for|that|which|since|whose|whom|likewise)\b", re.IGNORECASE)
# A test's docstring states what holds; another one says what a function does or returns, what something is.
CLAUSE = re.compile(r"(what|where|when|why|how|who|whether|as)\b", re.IGNORECASE)
PRONOUN = re.compile(r"(its?|they|their)\b", re.IGNORECASE)  # no noun stands before it
C_NAMES = {".c", ".h", ".def"}
# String and character literals come first, so that what looks like a comment in them is skipped.
C_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(.*?)\*/|//([^\n]*)', re.DOTALL)

LIST_ITEM = re.compile(r"^ \* +(?:\d+\.|-) ")
MARGIN = re.compile(r"^ \* \S")

Comments = Iterator[tuple[int, str]]
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def c_comments(text: str) -> Comments:
    """Return line and text of each comment; lines of `//` below each other are one."""
    line, at, last_line = 1, 0, 0
    for token in C_TOKENS.finditer(text):
        block, rest = token.groups()
        if block is None and rest is None:
            continue
        line += text.count("\n", at, token.start())
        at = token.start()
        if block is not None:
            yield line, block.lstrip("* \n")
        else:
            is_alone = not text[text.rfind("\n", 0, token.start()) + 1 : token.start()].strip()
            if not (is_alone and line == last_line + 1):
                yield line, rest.lstrip("/ ")
            last_line = line


def items_at_margin(text: str) -> Comments:
    """Yield the lines at the margin that end an item of a list: clang-format moves the end of a long item."""
    is_in_item = False
    for number, line in enumerate(text.splitlines(), 1):
        if LIST_ITEM.match(line):
            is_in_item = True
        elif is_in_item and MARGIN.match(line):
            yield number, line
        else:
            is_in_item = is_in_item and line.startswith(" *  ")


def python_comments(text: str) -> Comments:
    """Return line and text of each comment and docstring; comments below each other are one."""
    yield from hash_comments(text)
    yield from all_docstrings(text)


def hash_comments(text: str) -> Comments:
    """Return line and text of each comment behind a #; those below each other are one."""
    last_line = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        is_alone = not token.line[: token.start[1]].strip()
        if not (is_alone and line == last_line + 1):
            yield line, token.string.lstrip("#: ")
        last_line = line


def docstrings(text: str) -> Iterator[tuple[Documented, str]]:
    """Return all modules, classes and functions that have a docstring, with it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node, docstring.lstrip()


def all_docstrings(text: str) -> Comments:
    """Return line and text of all docstrings."""
    for node, docstring in docstrings(text):
        yield node.body[0].lineno, docstring


def docstrings_but_tests(text: str) -> Comments:
    """Return line and text of all docstrings but those of test functions."""
    for node, docstring in docstrings(text):
        if isinstance(node, ast.Module) or not node.name.startswith("test_"):
            yield node.body[0].lineno, docstring


def find_fragments(comments: Comments, pattern: re.Pattern[str] = FRAGMENT) -> list[tuple[int, str]]:
    return [(line, text) for line, text in comments if pattern.match(text)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("int a; /* of the peer */", [1]),
        ("/* Counts what\n * of all is left. */\n/*\n * For all. */", [3]),
        ('char *a = "/* of b */"; // Since then', [1]),
        ("// Counts what\n// of all is left.\nint a; // which\n", [3]),
        ("int a; /* ofs, format, forms and thatch are words */", []),
    ],
)
def test_fragments_of_c_are_found(text: str, lines: list[int]) -> None:
    assert [line for line, _ in find_fragments(c_comments(text))] == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Of a module."""\na = 1  # that\n', [1, 2]),
        ('def f():\n    """For a."""\n', [2]),
        ("# Counts what\n# of all is left.\na = '# of'\n", []),
    ],
)
def test_fragments_of_python_are_found(text: str, lines: list[int]) -> None:
    assert sorted(line for line, _ in find_fragments(python_comments(text))) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('def f():\n    """What it returns."""\n', [2]),
        ('def f():\n    """Return what it has."""\n', []),
        ('def test_f():\n    """What is lost comes again."""\n', []),
        ('class F:\n    """What a file has."""\n', [2]),
        ('"""Whether a file fits."""\n', [1]),
    ],
)
def test_clauses_in_docstrings_are_found(text: str, lines: list[int]) -> None:
    assert [line for line, _ in find_fragments(docstrings_but_tests(text), CLAUSE)] == lines


def test_pronouns_in_docstrings_are_found() -> None:
    text = 'def test_f():\n    """It is lost."""\n\n\ndef test_g():\n    """Items are lost."""\n'
    assert [line for line, _ in find_fragments(all_docstrings(text), PRONOUN)] == [2]


def test_comments_are_sentences(root: Path) -> None:
    found = []
    for file in tracked_files(root):
        if file.suffix in C_NAMES:
            comments = c_comments(file.read_text())
        elif file.suffix == ".py":
            comments = python_comments(file.read_text())
        else:
            continue
        found += [f"{file.relative_to(root)}:{n}: {text[:100]}" for n, text in find_fragments(comments)]
    assert not found, f"{len(found)} comments begin with a fragment:\n" + "\n".join(found)


def test_docstrings_begin_with_a_verb_or_a_noun(root: Path) -> None:
    found = []
    for file in tracked_files(root):
        if file.suffix == ".py":
            clauses = find_fragments(docstrings_but_tests(file.read_text()), CLAUSE)
            found += [f"{file.relative_to(root)}:{n}: {text[:100]}" for n, text in clauses]
    assert not found, f"{len(found)} docstrings begin with a clause:\n" + "\n".join(found)


def test_docstrings_begin_with_no_pronoun(root: Path) -> None:
    found = []
    for file in tracked_files(root):
        if file.suffix == ".py":
            pronouns = find_fragments(all_docstrings(file.read_text()), PRONOUN)
            found += [f"{file.relative_to(root)}:{n}: {text[:100]}" for n, text in pronouns]
    assert not found, f"{len(found)} docstrings begin with a pronoun:\n" + "\n".join(found)


def test_items_at_the_margin_are_found() -> None:
    text = "/* Rules:\n *\n *   1. One is\n * long.\n *   2. Two\n *      is not.\n *\n * Owned by it. */\n"
    assert [line for line, _ in items_at_margin(text)] == [4]


def test_items_of_lists_are_indented(root: Path) -> None:
    found = []
    for file in tracked_files(root):
        if file.suffix in C_NAMES:
            found += [f"{file.relative_to(root)}:{n}: {text}" for n, text in items_at_margin(file.read_text())]
    assert not found, "the end of an item of a list is at the margin:\n" + "\n".join(found)
