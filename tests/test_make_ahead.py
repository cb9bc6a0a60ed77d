# SPDX-License-Identifier: Apache-2.0
"""Programs made in the background are there for whoever needs them, and made once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests import native

MAKEFILE = """
%.done:
\ttouch $*.begun
\tsleep 0.3
\techo made >> $*.log
\ttouch $@
"""

SLOW_MAKEFILE = """
slow:
\ttouch started
\twhile [ $$(nice) = %d ]; do sleep 0.02; done
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(native, "PLUGIN_DIR", tmp_path)
    return tmp_path


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(native.POLL_S)


def test_what_is_made_ahead_is_made_once(folder: Path) -> None:
    native.make_ahead([["a.done"]])
    wait_for(folder / "a.begun")
    done = native.run_make("a.done")
    assert done.returncode == 0
    assert (folder / "a.log").read_text() == "made\n"


def test_a_failure_is_reported_to_the_caller(folder: Path) -> None:
    native.make_ahead([["nonsense"], ["b.done"]])
    assert native.run_make("nonsense").returncode != 0
    assert native.run_make("b.done").returncode == 0
    assert (folder / "b.done").exists()


def test_no_more_is_made_when_it_is_ended(folder: Path) -> None:
    end = native.make_ahead([["c.done"], ["d.done"]])
    wait_for(folder / "c.begun")
    end()
    native.run_make("e.done")  # waits for what was running
    assert not (folder / "c.done").exists()
    assert not (folder / "d.begun").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_what_is_waited_for_gets_the_priority_of_who_waits(folder: Path) -> None:
    (folder / "Makefile").write_text(SLOW_MAKEFILE % native.LOWEST_PRIORITY)
    end = native.make_ahead([["slow"]])
    wait_for(folder / "started")
    assert native.run_make("--version").returncode == 0  # waits for it, and it for another priority
    end()
