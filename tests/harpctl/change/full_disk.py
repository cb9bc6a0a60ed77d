# SPDX-License-Identifier: Apache-2.0
"""Set up hosts on a file system that gets full in between; run in a mount namespace of its own.

Usage: python -m tests.harpctl.change.full_disk DIR.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.change.journal import Journal, Transaction
from harpctl.errors import HarpError
from harpctl.host.host import Host
from tests.harpctl.change.site import make_host, make_tree, set_up, take_snapshot, undo_all

SIZE = 640 << 10
PAGE = 4096
MS_RDONLY, MS_REMOUNT = 1, 32
LIBC = ctypes.CDLL(None, use_errno=True)


def mount_small(target: Path, flags: int = 0) -> None:
    """Mount a small tmpfs, or mount it anew with other flags."""
    options = f"size={SIZE}".encode()
    if LIBC.mount(b"tmpfs", os.fsencode(target), b"tmpfs", flags, options) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def fill_disk(disk: Path, pages: int) -> None:
    """Leave so many pages free."""
    free = os.statvfs(disk).f_bfree
    (disk / "filler").write_bytes(bytes(max(0, free - pages) * PAGE))


def error_of(action: Callable[[Host], object], root: Path) -> HarpError | None:
    """Return the error that an action ends with, if any."""
    try:
        action(make_host(root))
    except HarpError as error:
        return error
    return None


def try_full_disks(disk: Path, *, late: bool) -> Counter[str]:
    """Set up with 0 to 120 free pages; `late`: they get so few only after the check that would refuse."""
    counts: Counter[str] = Counter()
    for pages in range(120):
        root = disk / "host"
        make_tree(root)
        before = take_snapshot(root)
        with pytest.MonkeyPatch.context() as patch:
            if late:
                patch.setattr(Journal, "begin", filling_first(disk, pages))
            else:
                fill_disk(disk, pages)
            error = error_of(set_up, root)
        if error is None:
            assert undo_all(make_host(root)).kept == ()
        else:
            assert "No space left on device" in error.message, error
            assert "Free space" in error.hint, error
        assert take_snapshot(root) == before, (late, pages)
        counts["done" if error is None else "failed"] += 1
        shutil.rmtree(root)
        (disk / "filler").unlink()
    return counts


def filling_first(disk: Path, pages: int) -> Callable[[Journal, str], Transaction]:
    """Return a Journal.begin that somebody fills the disk before."""
    begin = Journal.begin

    def filled(journal: Journal, what: str) -> Transaction:
        fill_disk(disk, pages)
        return begin(journal, what)

    return filled


def try_read_only(disk: Path) -> None:
    """Set up, and undo, on a disk that can't be written to."""
    root = disk / "host"
    make_tree(root)
    for action in (set_up, undo_all):
        before = take_snapshot(root)
        mount_small(disk, MS_REMOUNT | MS_RDONLY)
        error = error_of(action, root)
        mount_small(disk, MS_REMOUNT)
        assert error is not None
        assert "Read-only file system" in error.message, error
        assert "Mount its file system writable" in error.hint, error
        assert take_snapshot(root) == before
        set_up(make_host(root))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    mount_small(place)
    for is_late in (False, True):
        found = try_full_disks(place, late=is_late)
        assert found["done"], found
        assert found["failed"], found
    try_read_only(place)
