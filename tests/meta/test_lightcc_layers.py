# SPDX-License-Identifier: Apache-2.0
"""Modules of lightcc import nothing of HARP, and torch only where it is known to be there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "lightcc"
ALLOWED = {
    "notices": set[str](),
    "settings": {"notices"},
    "estimate": set(),
    "codec": set(),
    "report": set(),
    "lane": set(),
    "groups": {"notices"},
    "reduce": {"codec", "groups"},
    "hook": {"groups", "lane", "notices", "reduce", "report", "settings"},
    "patch": {"groups", "hook", "lane", "notices", "report", "settings"},
    "state": {"groups", "hook", "notices", "patch"},
    "__init__": {"notices", "patch", "settings", "state"},
    "boot": {"__init__", "notices", "settings"},
    "launch": {"notices", "settings"},
}
WITHOUT_TORCH = {"notices", "settings", "estimate", "boot", "launch", "__init__"}  # until require_torch()


def imports_of(nodes: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield what statements import, also in functions; "lightcc.codec" for a module of ours."""
    for statement in nodes:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                yield from (f"{base}.{each.name}" if base == "lightcc" else base for each in node.names)


def test_every_module_has_its_row() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == set(ALLOWED)


@pytest.mark.parametrize("module", ALLOWED)
def test_a_module_imports_what_its_row_allows(module: str) -> None:
    body = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")).body
    found = set(imports_of(body))
    ours = {name.partition("lightcc.")[2] or "__init__" for name in found if name.startswith("lightcc")}
    stems = {name if name in ALLOWED else "__init__" for name in ours}
    assert stems == ALLOWED[module]
    strangers = {name.split(".")[0] for name in found} - sys.stdlib_module_names - {"lightcc"}
    assert strangers <= {"torch"}
    if module in WITHOUT_TORCH:
        top = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
        assert not [name for name in imports_of(top) if name.startswith("torch")]
