# SPDX-License-Identifier: Apache-2.0
"""Makes the Wireshark dissector: fields and codes from the tables, behaviour from harp.lua.in."""

from __future__ import annotations

from harplab.dissector.tables import (
    ENUM_OF,
    ENUMS,
    HEX,
    Field,
    names_of_codes,
    parse_constants,
    parse_layouts,
)


def _field_row(layout: str, field: Field) -> str:
    words = [f'name = "{field.name}"', f"offset = {field.offset}", f"size = {field.size}"]
    words += [f'type = "{"text" if field.is_text else field.type}"', f"count = {field.values}"]
    if field.name in HEX:
        words.append("hex = true")
    if (layout, field.name) in ENUM_OF:
        words.append(f"codes = {ENUM_OF[layout, field.name]}")
    return "    { " + ", ".join(words) + " },"


def tables_text(text: str) -> str:
    """Return the part that is made from docs/reference/wire.md."""
    lines = ["local C = {"]
    lines += [f"  {name.removeprefix('HARP_')} = {value}," for name, value in parse_constants(text).items()]
    lines.append("}")
    for name, prefix in {**ENUMS, "FLAGS": "HARP_FLAG_"}.items():
        words = ", ".join(f'[{code}] = "{word}"' for code, word in names_of_codes(text, prefix).items())
        lines.append(f"local {name} = {{ {words} }}")
    lines.append("local LAYOUTS = {")
    for layout, fields in parse_layouts(text).items():
        if layout.startswith("harp_wire_"):
            lines.append(f"  {layout.removeprefix('harp_wire_')} = {{")
            lines += [_field_row(layout, field) for field in fields]
            lines.append("  },")
    lines.append("}")
    return "\n".join(lines) + "\n"


def wireshark_dissector(text: str, template: str) -> str:
    """Return the dissector's source."""
    return template.replace("-- @TABLES@\n", tables_text(text))
