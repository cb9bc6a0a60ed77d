# SPDX-License-Identifier: Apache-2.0
"""The findings of doctor on another host, out of a support bundle."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from harpctl.doctor.archive import DOCTOR, Manifest, read_archive
from harpctl.doctor.model import Finding
from harpctl.errors import ExitCode, HarpError
from harpctl.records import decode


def read_findings(path: Path) -> tuple[Manifest, list[Finding]]:
    """Return the manifest of a bundle, and its findings."""
    manifest, files = read_archive(path)
    if DOCTOR not in files:
        why = next((unread.why for unread in manifest.unread if unread.what == DOCTOR), "it was not written")
        raise HarpError(f"{path} holds no findings of doctor: {why}.", "", ExitCode.WRONG_DATA)
    hint = f"It was written by harpctl {manifest.harpctl}: read it with that."
    findings = decode(files[DOCTOR], list[Finding], f"{path}: its {DOCTOR}", hint)
    return manifest, [replace(one, steps=()) for one in findings]  # nothing of another host is done here
