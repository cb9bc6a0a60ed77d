# SPDX-License-Identifier: Apache-2.0
"""The journal's format: torn, foreign, newer and old ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harpctl.change.journal import Journal
from harpctl.change.store import JOURNAL
from harpctl.errors import ExitCode, HarpError
from tests.harpctl.change.site import Snapshot, make_host, make_tree, set_up, take_snapshot, undo_all

GOLDEN = Path(__file__).parent / "journal-1.json"


def the_file(root: Path) -> Path:
    (path,) = root.glob(f"{JOURNAL[1:]}/*.jsonl")
    return path


def edit_records(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change every object in every record."""

    def visit(value: object) -> None:
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            visit(inner)
        if isinstance(value, dict):
            change(value)

    records = [json.loads(line) for line in path.read_text().splitlines()]
    visit(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def build_tree(root: Path, tree: Snapshot) -> None:
    """Make a tree that a snapshot was taken of."""
    for path, (kind, mode, data) in sorted(tree.items()):
        here = root / path.lstrip("/")
        if kind.startswith("l"):
            here.symlink_to(data.decode())
        elif kind.startswith("d"):
            here.mkdir()
            here.chmod(mode)
        else:
            here.write_bytes(data)
            here.chmod(mode)


def test_a_last_line_that_was_written_in_part(tmp_path: Path) -> None:
    """What it would announce was not done; cut anywhere, everything before it is undone."""
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    set_up(make_host(tmp_path))
    cut = 1
    while True:
        path = the_file(tmp_path)
        *whole, last, _nothing = path.read_bytes().split(b"\n")
        if cut > len(last):
            return
        path.write_bytes(b"\n".join([*whole, last[:-cut]]))
        assert Journal(make_host(tmp_path)).transactions()[0].is_open
        undo_all(make_host(tmp_path))
        assert take_snapshot(tmp_path) == before
        set_up(make_host(tmp_path))
        cut += 1


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    set_up(make_host(tmp_path))

    def add_field(value: dict[str, object]) -> None:
        if {"record", "do", "kind"} & value.keys():
            value["newer"] = {"some": ["thing"]}

    edit_records(the_file(tmp_path), add_field)
    assert undo_all(make_host(tmp_path)).kept == ()
    assert take_snapshot(tmp_path) == before


def test_a_newer_format_names_the_version_to_use(tmp_path: Path) -> None:
    make_tree(tmp_path)
    set_up(make_host(tmp_path))
    edit_records(
        the_file(tmp_path), lambda value: value.update(format=2, version="7.1") if "format" in value else 0
    )
    now = take_snapshot(tmp_path)
    with pytest.raises(HarpError, match="format 2") as caught:
        undo_all(make_host(tmp_path))
    assert "version 7.1" in caught.value.hint
    assert caught.value.exit_code == ExitCode.WRONG_DATA
    with pytest.raises(HarpError, match="format 2"):
        set_up(make_host(tmp_path))
    assert take_snapshot(tmp_path) == now


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"do":"put back"', b'"do":"put elsewhere"', "does not know"),
        (b'"record":"before"', b'"record":"meanwhile"', "does not know"),
        (b'"step":1,', b'"step":1 ', "is damaged: line 2"),
        (b'"record":"begin"', b'"record":"done"', "is damaged: its first record"),
    ],
)
def test_records_that_make_no_sense(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    make_tree(tmp_path)
    set_up(make_host(tmp_path))
    path = the_file(tmp_path)
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    now = take_snapshot(tmp_path)
    with pytest.raises(HarpError, match=message):
        undo_all(make_host(tmp_path))
    assert take_snapshot(tmp_path) == now


def test_a_journal_of_format_1_is_undone(tmp_path: Path) -> None:
    """A journal as the first version wrote it, with the host that it left, is undone for ever.

    The file holds the host before and after; it is never written anew: a new format gets one of its own.
    """
    golden = msgspec.json.decode(GOLDEN.read_bytes(), type=dict[str, Snapshot])
    build_tree(tmp_path, golden["after"])
    report = undo_all(make_host(tmp_path))
    assert report.kept == ()
    assert len(report.undone) == 1
    assert take_snapshot(tmp_path) == golden["before"]
