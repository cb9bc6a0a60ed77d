# SPDX-License-Identifier: Apache-2.0
"""Finding the files of a host, and the states of their processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.stats import files
from harpctl.stats.files import find_one, find_processes
from tests.harpctl.stats.build import START, make_process, pack_page, write_page


def states_below(root: Path) -> dict[int, str]:
    return {process.pid: process.state for process in find_processes(Host(root)).processes}


def test_states(tmp_path: Path) -> None:
    for pid in (10, 11, 12, 13, 14):
        write_page(tmp_path, pid, pack_page(pid, {}, age_s=5.0 if pid == 12 else 0.0))
    make_process(tmp_path, 10)
    make_process(tmp_path, 11, state="T")
    make_process(tmp_path, 12)
    make_process(tmp_path, 13, start=START + 1)  # another process has the number now
    assert states_below(tmp_path) == {10: "running", 11: "stopped", 12: "late", 13: "gone", 14: "gone"}


def test_another_namespace(tmp_path: Path) -> None:
    make_process(tmp_path, 10)
    write_page(tmp_path, 10, pack_page(10, {}, namespace=1))
    write_page(tmp_path, 11, pack_page(11, {}, namespace=1, age_s=5.0))
    assert states_below(tmp_path) == {10: "running", 11: "elsewhere"}
    assert find_processes(Host(tmp_path), 10).processes[0].command == ""  # number 10 is another's here


def test_the_rank_that_the_launcher_sets(tmp_path: Path) -> None:
    write_page(tmp_path, 10, pack_page(10, {}))
    make_process(tmp_path, 10, OMPI_COMM_WORLD_RANK="5", SLURM_PROCID="9")
    (process,) = find_processes(Host(tmp_path)).processes
    assert (process.rank, process.command) == ("5", "python train.py")


def test_the_rest_is_shown_beside_a_bad_file(tmp_path: Path) -> None:
    write_page(tmp_path, 10, pack_page(10, {}))
    make_process(tmp_path, 10)
    bad = write_page(tmp_path, 11, b"nothing")
    (bad.parent / "notes.txt").write_text("not ours")
    found = find_processes(Host(tmp_path))
    assert [process.pid for process in found.processes] == [10]
    assert [unread.file for unread in found.unread] == ["/run/harp/11-4711.stats"]
    assert found.exit_code() == ExitCode.WRONG_DATA


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_one_users_files_hide_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILES_MAX", 2)
    for pid in (10, 11, 12, 13, 20):
        make_process(tmp_path, pid)
        path = write_page(tmp_path, pid, pack_page(pid, {}))
        os.chown(path, 1000 if pid < 20 else 2000, -1)
    found = files.find_processes(Host(tmp_path))
    assert [process.pid for process in found.processes] == [10, 11, 20]
    (unread,) = found.unread
    assert "The user with the number 1000 has more statistics files" in unread.error
    monkeypatch.setattr(files, "FILES_MAX", 256)
    monkeypatch.setattr(files, "BYTES_MAX", -1)
    assert files.find_processes(Host(tmp_path)).processes == ()


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write_page(tmp_path, 10, b"").unlink()
    (tmp_path / "run" / "harp" / "10-4711.stats").mkdir()  # as little to be opened as another user's
    with pytest.raises(HarpError) as caught:
        find_one(Host(tmp_path), 10)
    assert caught.value.exit_code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("pid", "message"), [(10, "Process 10 has no statistics file."), (9, "There is no process 9.")]
)
def test_no_file(tmp_path: Path, pid: int, message: str) -> None:
    make_process(tmp_path, 10)
    with pytest.raises(HarpError) as caught:
        find_one(Host(tmp_path), pid)
    assert caught.value.message == message
    assert caught.value.exit_code == ExitCode.MISSING
