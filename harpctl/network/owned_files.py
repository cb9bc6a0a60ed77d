# SPDX-License-Identifier: Apache-2.0
"""The files that are ours: written for the ENIs of this setup, and gone for those of former ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harpctl.change.steps import AnyStep, RemoveFile, WriteFile

HEAD = "# Written by harpctl setup; harpctl rollback takes it away.\n"
WHY = "address and routes of the ENI at boot"


def plan_files(
    wanted: Mapping[str, str], found: Iterable[str], *, mode: int = 0o644, why: str = WHY
) -> list[AnyStep]:
    """Plan the files (path -> text), and the end of those of ours found that nobody asks for any more."""
    new = [WriteFile(path=path, data=text.encode(), mode=mode, why=why) for path, text in wanted.items()]
    stale = [path for path in found if path not in wanted]
    return [*new, *(RemoveFile(path=path, why="this ENI is not used any more") for path in stale)]
