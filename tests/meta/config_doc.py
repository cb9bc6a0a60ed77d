# SPDX-License-Identifier: Apache-2.0
"""The lists of settings in docs/reference/configuration.md, which `make -C plugin settings` writes."""

from __future__ import annotations

import json
import re
import textwrap
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "harpctl" / "confs" / "settings.json"
FILE = ROOT / "docs" / "reference" / "configuration.md"

COLUMNS = 100
KEYS = re.compile(r"^`\[eni\]`\n.*?(?=\n## )", re.MULTILINE | re.DOTALL)  # up to the next heading
VARIABLES = re.compile(r"(?:^- `HARP_.*\n(?:  .*\n)*)+", re.MULTILINE)
LINKS = {  # words of a meaning, and the page with more about them
    "nearest ENI": "../explanation/striping.md#devices",
    "devices that use all ENIs": "../explanation/striping.md",
    "in every NCCL": "../how-to/operations.md#controls-by-nccl-release",
    "what for": "statistics.md#reasons-for-a-wait",
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


def _describe(names: str, row: Row) -> str:
    """Return the item of a setting: its names, what is expected and the default, the meaning."""
    expected = str(row["expected"]).removeprefix("a number from ")
    text = f"- {names} ({expected}; {_default_of(row)}): {_meaning_of(row)}"
    wrapped = textwrap.wrap(text, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped) + "\n"


def _names_of_key(row: Row) -> str:
    variable = f", `{row['variable']}`" if row["variable"] else ""
    return f"`{row['key']}`{' *' if row['scope'] == 'job' else ''}{variable}"


def _describe_keys() -> str:
    """Return the keys of the conf file, a list for each section."""
    keys = [row for row in load_rows() if row["key"]]
    return "\n".join(
        f"`[{section}]`\n\n" + "".join(_describe(_names_of_key(row), row) for row in rows)
        for section, rows in groupby(keys, lambda row: row["section"])
    )


def _describe_variables() -> str:
    """Return the variables that no key has."""
    return "".join(_describe(f"`{row['variable']}`", row) for row in load_rows() if not row["key"])


def generate_document(text: str) -> str:
    """Return the document's text with the lists of the settings."""
    for pattern, items in ((KEYS, _describe_keys()), (VARIABLES, _describe_variables())):
        text, count = pattern.subn(items.replace("\\", "\\\\"), text)
        assert count == 1, f"{FILE.name} has {count} lists like {pattern.pattern}"
    return text


if __name__ == "__main__":
    FILE.write_text(generate_document(FILE.read_text(encoding="utf-8")), encoding="utf-8")
