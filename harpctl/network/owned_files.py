# SPDX-License-Identifier: Apache-2.0
"""The files that setup writes for its ENIs, and removes for the ENIs of earlier setups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harpctl.change.steps import AnyStep, RemoveFile, WriteFile

HEAD = "# Written by harpctl setup; harpctl rollback takes it away.\n"
WHY = "address and routes of the ENI at boot"


def plan_files(
    wanted: Mapping[str, str], found: Iterable[str], *, mode: int = 0o644, why: str = WHY
) -> list[AnyStep]:
    """Plan the files (path -> text), and the removal of our other files that were found."""
    new = [WriteFile(path=path, data=text.encode(), mode=mode, why=why) for path, text in wanted.items()]
    stale = [path for path in found if path not in wanted]
    return [*new, *(RemoveFile(path=path, why="this ENI is not used any more") for path in stale)]
