# SPDX-License-Identifier: Apache-2.0
"""The release run, `./harp_setup test --release`: long runs to fixed figures, that go on where they stopped.

The record, the corpora and what failed are in a folder. Each slice of an item takes minutes; a run that is
stopped loses the slice under way. It runs at a low priority, beside other work. Items whose record is of
another commit begin anew, unless that is to be kept.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import BUILD_DIR, ROOT
from tests.release.items import all_items
from tests.release.record import load_record, record_table, save_record
from tests.release.runner import Runner

NICE = 15
SLICE_S = 180.0


def name_commit() -> str:
    """Name the commit, and whether files differ from it."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./harp_setup test --release", description=__doc__)
    parser.add_argument("--folder", type=Path, default=BUILD_DIR / "release", help="where the record is")
    parser.add_argument("--minutes", type=float, help="stop after so long; else when all is done")
    parser.add_argument("--slice-s", type=float, default=SLICE_S, metavar="S", help="of one item's slice")
    parser.add_argument("--only", action="append", metavar="ITEM", help="this one alone; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep the figures of another commit")
    parser.add_argument("--table", action="store_true", help="print the table and do nothing")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run; return the exit code: 1 where anything has failed."""
    wanted = _parse_arguments(argv)
    wanted.folder.mkdir(parents=True, exist_ok=True)
    items = all_items(wanted.folder)
    unknown = sorted(set(wanted.only or ()) - {item.name for item in items})
    if unknown:
        print(
            f"no item {', '.join(unknown)}; there are {', '.join(item.name for item in items)}",
            file=sys.stderr,
        )
        return 2
    chosen = [item for item in items if not wanted.only or item.name in wanted.only]
    file = wanted.folder / "record.json"
    record = load_record(file, name_commit(), keep=wanted.keep or wanted.table)
    passed = True
    if not wanted.table:
        os.nice(max(0, NICE - os.nice(0)))
        save_record(file, record)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        seconds = None if wanted.minutes is None else 60 * wanted.minutes
        try:
            passed = Runner(chosen, record, file, wanted.slice_s, lambda line: print(line, flush=True)).run(
                seconds
            )
        except KeyboardInterrupt:
            print("stopped; the slice under way does not count", flush=True)
    text = record_table(record, items)
    (wanted.folder / "table.md").write_text(text)
    print(text)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
