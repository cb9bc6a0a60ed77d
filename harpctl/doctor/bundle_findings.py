# SPDX-License-Identifier: Apache-2.0
"""The findings of doctor on another host, out of a support bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from harpctl.doctor.archive import DOCTOR, Manifest, read_archive
from harpctl.doctor.model import Finding
from harpctl.errors import ExitCode, HarpError


def printable(text: str) -> str:
    """Return a text of another host without what a terminal would take for a command."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


def read_findings(path: Path) -> tuple[Manifest, list[Finding]]:
    """Return the manifest of a bundle, and its findings."""
    manifest, files = read_archive(path)
    if DOCTOR not in files:
        why = next((unread.why for unread in manifest.unread if unread.what == DOCTOR), "it was not written")
        raise HarpError(f"{path} holds no findings of doctor: {printable(why)}.", "", ExitCode.WRONG_DATA)
    try:
        plain: Any = _cleaned(msgspec.json.decode(files[DOCTOR]))
        for finding in plain:
            finding.pop("steps", None)  # nothing of another host is carried out here
        return manifest, msgspec.convert(plain, list[Finding])
    except (msgspec.MsgspecError, TypeError, AttributeError):
        raise HarpError(
            f"{path}: its {DOCTOR} is not understood.",
            f"It was written by harpctl {printable(manifest.harpctl)}: read it with that.",
            ExitCode.WRONG_DATA,
        ) from None
