# SPDX-License-Identifier: Apache-2.0
"""`harpctl dissector`: a Wireshark dissector and a scapy layer for what HARP sends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harpctl.build_info import wire_doc
from harpctl.console import OUT, print_json
from harpctl.dissector.scapy_layer import scapy_layer
from harpctl.dissector.wireshark import wireshark_dissector
from harpctl.errors import HarpError

LUA, LAYER = "harp.lua", "harp_scapy.py"
HERE = Path(__file__).resolve().parent


def made() -> dict[str, str]:
    """Return the text of each file by its name."""
    document = wire_doc()
    lua, layer = ((HERE / f"{name}.in").read_text(encoding="utf-8") for name in (LUA, LAYER))
    return {LUA: wireshark_dissector(document, lua), LAYER: scapy_layer(document, layer)}


def dissector(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the files go.")] = Path(),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files' names as JSON.")] = False,
) -> None:
    """Write harp.lua, a dissector for Wireshark, and harp_scapy.py, a layer for scapy.

    Both know datagrams, control connections and the records of tcp paths, and are made from the tables of
    docs/wire.md. Wireshark and tshark take the first one by `-X lua_script:harp.lua`.
    """
    files = {folder / name: text for name, text in made().items()}
    try:
        for file, text in files.items():
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HarpError(
            f"{error.filename}: {error.strerror}.", "Name a folder that you may write to."
        ) from None
    if as_json:
        print_json({"files": [str(file) for file in files]})
    else:
        for file in files:
            OUT.print(str(file), markup=False)
