# SPDX-License-Identifier: Apache-2.0
"""docs/reference/wire.md agrees with the code: each layout, each constant, each code, each key label."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harplab.dissector.tables import CODE, CONSTANT, parse_layouts

HEADERS = (
    "base/status.h",
    "wire/packet.h",
    "wire/record.h",
    "wire/control.h",
    "proto/recv.h",
    "engine/control/handle.h",
)
NAME = re.compile(r"\bHARP_\w+")
LABEL = re.compile(r"HARP [a-z]{3} (?:client|server)\b")
LABEL_CHARS = 15


def text_of(root: Path) -> str:
    return (root / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")


def evaluate_in_c(root: Path, folder: Path, expressions: dict[str, str]) -> dict[str, int]:
    """Compile a program that prints the value of each C expression, and run it."""
    source, program = folder / "dump.c", folder / "dump"
    lines = [f'  printf("{key} %lld\\n", (long long)({value}));' for key, value in expressions.items()]
    includes = [f'#include "{header}"' for header in HEADERS]
    source.write_text("\n".join([*includes, "#include <stdio.h>", "int main(void) {", *lines, "}", ""]))
    built = subprocess.run(
        ["cc", "-std=gnu11", "-D_GNU_SOURCE", f"-I{root / 'plugin' / 'src'}", "-o", program, source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {key: int(value) for key, value in (line.rsplit(" ", 1) for line in output.splitlines())}


def test_layouts_are_those_of_the_structs(root: Path, tmp_path: Path) -> None:
    layouts = parse_layouts(text_of(root))
    expressions = {name: f"sizeof(struct {name})" for name in layouts}
    for name, fields in layouts.items():
        for field in fields:
            expressions[f"{name}.{field.name}"] = f"offsetof(struct {name}, {field.name})"
            expressions[f"{name}.{field.name}#"] = f"sizeof(((struct {name} *)0)->{field.name})"
    real = evaluate_in_c(root, tmp_path, expressions)
    for name, fields in layouts.items():
        end = 0
        for field in fields:
            where = f"{name}.{field.name}"
            assert field.offset == end, f"{where}: the lines before it end at {end}"
            assert (field.offset, field.size) == (real[where], real[f"{where}#"]), where
            end += field.size
        assert end == real[name], f"{name}: the layout ends at {end}, the struct at {real[name]}"


def test_every_layout_is_stated(root: Path) -> None:
    stated = set(parse_layouts(text_of(root)))
    declared = set()
    for header in ("wire/packet.h", "wire/record.h", "wire/control.h"):
        source = (root / "plugin" / "src" / header).read_text(encoding="utf-8")
        declared |= set(re.findall(r"^struct (harp_wire_\w+) \{", source, re.MULTILINE))
    assert declared
    assert stated == declared | {"harp_handle"}


def test_constants_and_codes_have_their_values(root: Path, tmp_path: Path) -> None:
    text = text_of(root)
    stated = [(name, int(value, 0)) for name, value in CONSTANT.findall(text)]
    stated += [(name, int(value)) for value, name in CODE.findall(text)]
    real = evaluate_in_c(root, tmp_path, {name: name for name in NAME.findall(text)})
    assert len(stated) > len(CONSTANT.findall(text)) > 0
    wrong = [
        f"{name}: {value} in the text, {real[name]} in the code" for name, value in stated if value != real[name]
    ]
    assert not wrong


@pytest.mark.parametrize("kind", ["harp_packet_type", "harp_packet_flags", "harp_control_type"])
def test_every_code_is_named(root: Path, kind: str) -> None:
    sources = "".join((root / "plugin" / "src" / h).read_text(encoding="utf-8") for h in HEADERS)
    body = re.search(rf"^enum {kind} \{{\n(.*?)^\}};", sources, re.MULTILINE | re.DOTALL)
    assert body is not None
    names = re.findall(r"^\s*(HARP_\w+)", body[1], re.MULTILINE)
    coded = {name for _, name in CODE.findall(text_of(root))}
    assert names
    assert set(names) <= coded


def test_key_labels_are_those_of_the_handshake(root: Path) -> None:
    source = (root / "plugin" / "src" / "proto" / "handshake.c").read_text(encoding="utf-8")
    used = set(re.findall(r'"(HARP [a-z ]+)"', source))
    assert used == set(LABEL.findall(text_of(root)))
    assert {len(label) for label in used} == {LABEL_CHARS}


def test_reason_of_a_message_that_is_too_large(root: Path, tmp_path: Path) -> None:
    stated = re.search(r"(\d+): a message was larger than its receive", " ".join(text_of(root).split()))
    assert stated is not None
    assert int(stated[1]) == evaluate_in_c(root, tmp_path, {"usage": "HARP_ERR_USAGE"})["usage"]
