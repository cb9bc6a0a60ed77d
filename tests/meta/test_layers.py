# SPDX-License-Identifier: Apache-2.0
"""A folder of plugin/src is a layer; it includes only the layers that design allows it."""

from __future__ import annotations

import re
import shutil
import subprocess
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

# The protocol's state: the layers above it call functions and read reports (proto/path_report.h).
PRIVATE_STRUCTS = ("harp_path", "harp_sender", "harp_receiver", "harp_rx_path")
ABOVE_PROTO = ("engine", "net", "nccl")

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def files_of(layer: str) -> list[Path]:
    return sorted(p for p in (SRC / layer).rglob("*") if p.suffix in {".c", ".h"})


def includes_of(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text())


def test_every_folder_is_a_layer() -> None:
    assert {p.name for p in SRC.iterdir() if p.is_dir()} == set(ALLOWED)


def test_layers_lie_in_folders() -> None:
    assert not [p for p in SRC.iterdir() if p.is_file() and p.suffix in {".c", ".h"}]


@pytest.mark.parametrize("layer", ALLOWED)
def test_includes_only_lower_layers(layer: str) -> None:
    wrong = []
    for path in files_of(layer):
        for name in includes_of(path):
            target = name.split("/", 1)[0]
            if "/" not in name or target not in ALLOWED[layer] | {layer}:
                wrong.append(f"{path.relative_to(SRC)} includes {name}")
    assert not wrong


@pytest.mark.parametrize("layer", ALLOWED)
def test_included_files_exist(layer: str) -> None:
    missing = [
        f"{p.relative_to(SRC)}: {name}"
        for p in files_of(layer)
        for name in includes_of(p)
        if not (SRC / name).is_file()
    ]
    assert not missing


def test_no_product_file_includes_a_test() -> None:
    for layer in ALLOWED:
        for path in files_of(layer):
            assert "tests/" not in " ".join(includes_of(path)), path


def with_deprecated_fields(header: str) -> str:
    """Mark each field of the private structs as deprecated, so that the compiler reports where it is used."""
    for struct in PRIVATE_STRUCTS:
        begin = re.search(rf"^struct {struct} {{$", header, re.MULTILINE)
        if not begin:
            continue
        end = header.index("\n};", begin.end())
        fields = COMMENT.sub("", header[begin.end() : end]).replace(";", "; __attribute__((deprecated))")
        fields = "__attribute__((deprecated))" + fields.removesuffix("__attribute__((deprecated))")
        header = header[: begin.end()] + fields + header[end:]
    return header


def uses_of_private_fields(src: Path, tmp_path: Path) -> list[str]:
    """Compile what lies above proto/; return the compiler's lines about uses of private fields."""
    copy = tmp_path / "src"
    shutil.copytree(src, copy)
    for path in (copy / "proto").glob("*.h"):
        path.write_text(with_deprecated_fields(path.read_text()))
    files = [str(p.relative_to(copy)) for layer in ABOVE_PROTO for p in sorted((copy / layer).rglob("*.c"))]
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-I.", "-Wdeprecated-declarations"]
    result = subprocess.run([*command, *files], cwd=copy, capture_output=True, text=True, check=True)
    layers = "|".join(ABOVE_PROTO)
    return re.findall(rf"^(?:\./)?((?:{layers})/\S+ warning: .*deprecated.*)$", result.stderr, re.MULTILINE)


def test_only_proto_reads_its_state(tmp_path: Path) -> None:
    assert uses_of_private_fields(SRC, tmp_path) == []


@pytest.mark.parametrize(
    "expression",
    [
        "s->sender->path_count",
        "s->sender->paths[0].state",
        "s->receiver->waiting",
        "s->receiver->paths[0].detour",
    ],
)
def test_a_read_of_its_state_is_found(tmp_path: Path, expression: str) -> None:
    sources = tmp_path / "changed"
    shutil.copytree(SRC, sources)
    reader = f"int harp_read(const struct harp_session *s) {{ return (int){expression}; }}"
    (sources / "engine" / "reader.c").write_text(f'#include "proto/session.h"\n{reader}\n')
    found = uses_of_private_fields(sources, tmp_path)
    assert found
    assert all(line.startswith("engine/reader.c") for line in found)
