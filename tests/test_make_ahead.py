# SPDX-License-Identifier: Apache-2.0
"""What is built in the background while tests run: whoever needs it does not wait for the lowest priority."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import native

WAITS_FOR_PRIORITY = """
slow: ; touch started; while [ $$(nice) = {lowest} ]; do sleep 0.02; done; touch slow
quick: ; test -f slow
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="to raise a priority takes root")
def test_a_make_that_is_waited_for_is_hastened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "PLUGIN_DIR", tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "Makefile").write_text(WAITS_FOR_PRIORITY.format(lowest=native.LOWEST_PRIORITY))
    end = native.make_ahead([["slow"]])
    while not (tmp_path / "started").exists():
        pass
    done = native.make("quick")
    end()
    assert done.returncode == 0, done.stdout


def test_an_end_leaves_no_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody waited for."""
    monkeypatch.setattr(native, "PLUGIN_DIR", tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "Makefile").write_text(
        "slow: ; touch started; sleep 600; touch slow\nquick: ; ! test -f slow\n"
    )
    end = native.make_ahead([["slow"], ["slow"]])
    while not (tmp_path / "started").exists():
        pass
    end()
    assert native.make("quick").returncode == 0
