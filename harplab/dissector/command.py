# SPDX-License-Identifier: Apache-2.0
"""`harpctl dissector`: a Wireshark dissector for what HARP sends."""

from __future__ import annotations

from pathlib import Path

from harpctl.command_line import FILE, argument, command, json_option
from harpctl.console import OUT, print_json
from harpctl.errors import HarpError
from harplab.dissector.tables import wire_doc
from harplab.dissector.wireshark import wireshark_dissector

LUA = "harp.lua"
TEMPLATE = Path(__file__).resolve().with_name(f"{LUA}.in")


@command()
@argument("folder", metavar="[FOLDER]", type=FILE, default=Path(), help="Where the file goes.")
@json_option
def dissector(folder: Path, *, as_json: bool) -> None:
    """Write harp.lua, a dissector for Wireshark.

    It knows datagrams, control connections and the records of tcp paths, and is made from the tables of
    docs/reference/wire.md. Wireshark and tshark take it by `-X lua_script:harp.lua`.
    """
    file = folder / LUA
    text = wireshark_dissector(wire_doc(), TEMPLATE.read_text(encoding="utf-8"))
    try:
        file.unlink(missing_ok=True)  # in a folder of all users it may be a link that somebody made
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        raise HarpError(f"{error.filename}: {error.strerror}.", "Name a folder that you may write to.") from None
    if as_json:
        print_json({"files": [str(file)]})
    else:
        OUT.print(str(file), markup=False)
