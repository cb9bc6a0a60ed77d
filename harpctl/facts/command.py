# SPDX-License-Identifier: Apache-2.0
"""`harpctl facts`: what harpctl knows of this host, or of a directory tree; it changes nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harpctl.command_line import command, json_option, root_option
from harpctl.console import OUT, print_json, print_table
from harpctl.facts.collect import collect_facts
from harpctl.facts.table import facts_tables, summarize_facts
from harpctl.host.host import open_host


@command()
@root_option
@json_option
def facts(*, root: Path | None, as_json: bool) -> None:
    """Show this host's system, memory, GPUs, ENIs and plugin. Works without root."""
    found = collect_facts(open_host(root))
    if as_json:
        print_json({"summary": summarize_facts(found), **msgspec.structs.asdict(found)})
        return
    for number, table in enumerate(facts_tables(found)):
        if number:
            OUT.print()
        print_table(table)
    for sentence in found.unknown:
        OUT.print(f"Unknown: {sentence}", style="yellow", markup=False)
