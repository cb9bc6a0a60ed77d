# SPDX-License-Identifier: Apache-2.0
"""Golden files of many distributions: one holds its text, each other one what is different there."""

from __future__ import annotations

import difflib
from pathlib import Path

from tests.harpctl.machine import DISTROS

WHOLE = "ubuntu-22.04"  # the distribution whose golden files hold the text
ORDER = (WHOLE, *(distro for distro in DISTROS if distro != WHOLE))  # --update-golden needs it first


def check_golden(folder: Path, distro: str, suffix: str, text: str, *, update: bool) -> None:
    """Compare a text with its golden file; none is there where it is the same as that of WHOLE."""
    golden = folder / f"{distro}{suffix}"
    if distro != WHOLE:
        whole = (folder / f"{WHOLE}{suffix}").read_text().splitlines()
        lines = difflib.unified_diff(whole, text.splitlines(), WHOLE, distro, n=0, lineterm="")
        text = "".join(f"{line}\n" for line in lines)
    if update:
        golden.unlink(missing_ok=True)
        if text:
            golden.write_text(text)
    expected = golden.read_text() if golden.exists() else ""
    assert text == expected, f"{golden.name}: if this is meant, run pytest with --update-golden"
