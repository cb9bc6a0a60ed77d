# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/reference/configuration.md, which `make -C plugin settings` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "harpctl" / "confs" / "settings.json"
FILE = ROOT / "docs" / "reference" / "configuration.md"

KEYS_HEAD = "| section | key | variable | expected | default | meaning |"
VARIABLES_HEAD = "| variable | expected | default | meaning |"
LINKS = {  # words of a meaning, and the page with more about them
    "nearest ENI": "../explanation/striping.md#what-nccl-sees",
    "devices that use all ENIs": "../explanation/striping.md",
    "in every NCCL": "../how-to/operations.md#controls-by-nccl-release",
    "what for": "statistics.md#when-nccl-waits",
    "by reference": "../explanation/drivers.md#tcp-beside-udp",
    "statistics file is made": "statistics.md",
    "dumps of the last events": "trace.md",
}

Row = dict[str, Any]


def load_rows() -> list[Row]:
    """Return the table of settings, as harpctl has it."""
    found: list[Row] = json.loads(TABLE.read_text(encoding="utf-8"))["settings"]
    return found


def _default_of(row: Row) -> str:
    if row["initial"] is None:
        return str(row["otherwise"])
    unit = "" if row["unit"] is None else f" {row['unit']}"
    return f"{row['initial']}{unit}"


def _meaning_of(row: Row) -> str:
    text = str(row["help"])
    for words, target in LINKS.items():
        text = text.replace(words, f"[{words}]({target})")
    return text


def _row_of_key(row: Row) -> str:
    key = row["key"] + (" *" if row["scope"] == "job" else "")
    variable = f"`{row['variable']}`" if row["variable"] else ""
    cells = (row["section"], key, variable, row["expected"], _default_of(row), _meaning_of(row))
    return f"| {' | '.join(map(str, cells))} |"


def _row_of_variable(row: Row) -> str:
    return f"| `{row['variable']}` | {row['expected']} | {_default_of(row)} | {_meaning_of(row)} |"


def _make_table(head: str, lines: list[str]) -> str:
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *lines, ""])


def generate_document(text: str) -> str:
    """Return the document's text with the tables of the settings."""
    keys = _make_table(KEYS_HEAD, [_row_of_key(row) for row in load_rows() if row["key"]])
    variables = _make_table(VARIABLES_HEAD, [_row_of_variable(row) for row in load_rows() if not row["key"]])
    for head, table in (("| section |", keys), ("| variable |", variables)):
        text, count = re.subn(
            rf"^{re.escape(head)}(?:.*\n\|)*.*\n", table.replace("\\", "\\\\"), text, flags=re.MULTILINE
        )
        assert count == 1, f"{FILE.name} has {count} tables that begin with {head}"
    return text


if __name__ == "__main__":
    FILE.write_text(generate_document(FILE.read_text(encoding="utf-8")), encoding="utf-8")
