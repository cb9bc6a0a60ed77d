# SPDX-License-Identifier: Apache-2.0
"""A folder of plugin/src is a layer; it includes only the layers that design allows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "plugin" / "src"

ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "wire": {"base"},
    "proto": {"base", "wire"},
    "io": {"base", "wire"},
    "host": {"base"},
    "engine": {"base", "wire", "proto", "io", "host"},
    "net": {"base", "wire", "io", "host", "engine"},
    "nccl": {"base", "net"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def files_of(layer: str) -> list[Path]:
    return sorted(p for p in (SRC / layer).rglob("*") if p.suffix in {".c", ".h"})


def includes(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text())


def test_every_folder_is_a_layer() -> None:
    assert {p.name for p in SRC.iterdir() if p.is_dir()} == set(ALLOWED)


def test_layers_lie_in_folders() -> None:
    assert not [p for p in SRC.iterdir() if p.is_file() and p.suffix in {".c", ".h"}]


@pytest.mark.parametrize("layer", ALLOWED)
def test_includes_only_lower_layers(layer: str) -> None:
    wrong = []
    for path in files_of(layer):
        for name in includes(path):
            target = name.split("/", 1)[0]
            if "/" not in name or target not in ALLOWED[layer] | {layer}:
                wrong.append(f"{path.relative_to(SRC)} includes {name}")
    assert not wrong


@pytest.mark.parametrize("layer", ALLOWED)
def test_included_files_exist(layer: str) -> None:
    missing = [
        f"{p.relative_to(SRC)}: {name}"
        for p in files_of(layer)
        for name in includes(p)
        if not (SRC / name).is_file()
    ]
    assert not missing


def test_no_product_file_includes_a_test() -> None:
    for layer in ALLOWED:
        for path in files_of(layer):
            assert "tests/" not in " ".join(includes(path)), path
