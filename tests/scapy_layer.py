# SPDX-License-Identifier: Apache-2.0
"""Makes the scapy layer: fields and codes from the tables, behaviour from harp_scapy.py.in."""

from __future__ import annotations

from harplab.dissector.tables import (
    ENUM_OF,
    ENUMS,
    HEX,
    Field,
    expand_layout,
    names_of_codes,
    parse_constants,
    parse_layouts,
)

COUNTS = {"range_count": "ranges", "credit_count": "credits", "eni_count": "enis"}
COMPUTED = {"length"}  # where the packet is built with None
KINDS = {"u8": "Byte", "u16": "Short", "u32": "Int"}
FORMATS = {"u8": "B", "u16": "H"}


def _field_expression(layout: str, field: Field) -> str:
    """Return the expression of a field."""
    name, kind = f'"{field.name}"', KINDS.get(field.type, "")
    default: int | str | None = None if field.name in COMPUTED else 0
    if field.name == "version":
        default = "WIRE_VERSION"
    made = f"{kind}Field({name}, {default})"
    if field.name == "addr":
        made = f"AddressField({name})"
    elif field.type == "bytes":
        made = f"{'TextField' if field.is_text else 'BytesField'}({name}, {field.size})"
    elif field.values > 1:
        made = f'ArrayField({name}, {kind}Field("", 0), {field.values})'
    elif (layout, field.name) in ENUM_OF:
        made = f"{kind}EnumField({name}, 0, {ENUM_OF[layout, field.name]})"
    elif field.name == "flags":
        made = f"FlagsField({name}, 0, {8 * field.size}, FLAGS)"
    elif field.name in COUNTS:
        made = f'FieldLenField({name}, None, fmt="{FORMATS[field.type]}", count_of="{COUNTS[field.name]}")'
    elif field.type == "u64":
        made = f"XLongField({name}, {default})"
    elif field.name in HEX:
        made = f"XIntField({name}, {default})"
    return made


def tables_text(text: str) -> str:
    """Return the part that is made from docs/reference/wire.md."""
    tables, lines = parse_layouts(text), []
    lines += [f"{name.removeprefix('HARP_')} = {value}" for name, value in parse_constants(text).items()]
    for name, prefix in ENUMS.items():
        lines.append(f"{name} = {{")
        lines += [f'    {code}: "{word}",' for code, word in names_of_codes(text, prefix).items()]
        lines.append("}")
    flags = {value.bit_length() - 1: name for value, name in names_of_codes(text, "HARP_FLAG_").items()}
    lines.append(f"FLAGS = {[flags.get(bit, f'bit{bit}') for bit in range(8)]!r}")
    for layout in tables:
        lines.append(f"\n\ndef {layout.removeprefix('harp_')}_fields() -> list[Any]:")
        lines.append(f'    """Return the fields of struct {layout}."""')
        lines.append("    return [")
        origin = {field.name: layout for field in tables[layout]}
        for field in expand_layout(tables, layout):
            lines.append(f"        {_field_expression(origin.get(field.name, 'harp_wire_prefix'), field)},")
        lines.append("    ]")
    return "\n".join(lines) + "\n"


def scapy_layer(text: str, template: str) -> str:
    """Return the module's source."""
    return template.replace("# @TABLES@\n", tables_text(text))
