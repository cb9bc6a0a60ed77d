# SPDX-License-Identifier: Apache-2.0
"""Killed at any point: a rollback restores every byte, and a second setup ends where one undisturbed does."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from harpctl.host.host import Host
from tests.harpctl.change import site
from tests.harpctl.change.site import (
    make_host,
    make_small_plan,
    make_tree,
    run_killed,
    take_snapshot,
    undo_all,
)

SEEDS = 24
PROCESSES = 2
Action = Callable[[Host], object]


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what only matters when the power fails."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


class Victim:
    """A host that is killed while it changes, and what it is before and after an undisturbed setup."""

    def __init__(self, folder: Path, set_up: Action = site.set_up, var_lib: str = "var/lib") -> None:
        self.root = folder / "host"
        self.set_up = set_up
        self.pristine = folder / "pristine"
        self.ready = folder / "ready"
        make_tree(self.pristine, var_lib=var_lib)
        self._before = take_snapshot(self.pristine)
        self.make(self.pristine)
        set_up(make_host(self.root))
        self._after = take_snapshot(self.root, journal=False)
        assert self._after != self._before
        self.root.rename(self.ready)

    def make(self, origin: Path) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(origin, self.root, symlinks=True)

    def sweep(
        self, action: Action, check: Callable[[Victim], None], *, ready: bool = False, stride: int = 1
    ) -> int:
        """Kill an action at every point, or every few, and check what follows; return the number of points.

        Each process takes every so many-th of them, on a host of its own.
        """
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(PROCESSES, mp_context=fork) as pool:
            parts = [
                pool.submit(_sweep_part, self, number * stride, PROCESSES * stride, action, check, ready)
                for number in range(PROCESSES)
            ]
            return max(part.result() for part in parts)

    def elsewhere(self, name: str) -> Victim:
        """Return the same host in another folder."""
        other = copy.copy(self)
        other.root = self.root.parent / name / "host"
        other.root.parent.mkdir(exist_ok=True)
        return other

    def kill(self, action: Action, at: int) -> bool:
        return run_killed(lambda: action(make_host(self.root)), at)

    def check_rollback(self) -> None:
        report = undo_all(make_host(self.root))
        assert report.kept == ()
        assert take_snapshot(self.root) == self._before

    def check_set_up(self) -> None:
        self.set_up(make_host(self.root))
        assert take_snapshot(self.root, journal=False) == self._after
        self.check_rollback()


def _sweep_part(
    victim: Victim, first: int, stride: int, action: Action, check: Callable[[Victim], None], ready: bool
) -> int:
    mine, at = victim.elsewhere(str(first)), first
    while True:
        mine.make(mine.ready if ready else mine.pristine)
        if not mine.kill(action, at):
            return at
        check(mine)
        at += stride


def test_setup_killed_then_rolled_back(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    assert victim.sweep(site.set_up, Victim.check_rollback, stride=4) > 100


def test_setup_killed_then_set_up(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    assert victim.sweep(site.set_up, Victim.check_set_up, stride=5) > 100


def test_rollback_killed_then_rolled_back(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    assert victim.sweep(undo_all, Victim.check_rollback, ready=True, stride=4) > 100


def test_rollback_killed_then_set_up(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    assert victim.sweep(undo_all, Victim.check_set_up, ready=True, stride=5) > 100


@pytest.mark.parametrize("var_lib", ["var/lib/harp", "var/lib", "var", ""])
def test_the_journals_own_folder(tmp_path: Path, var_lib: str) -> None:
    victim = Victim(tmp_path, functools.partial(site.set_up, plan=make_small_plan), var_lib)
    assert victim.sweep(victim.set_up, Victim.check_rollback) > 20
    assert victim.sweep(undo_all, Victim.check_set_up, ready=True) > 10


def test_killed_again_and_again(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    for seed in range(SEEDS):
        dice = random.Random(seed)
        victim.make(victim.pristine)
        for _round in range(dice.randrange(2, 6)):
            victim.kill(dice.choice((site.set_up, undo_all)), dice.randrange(250))
        try:
            dice.choice((victim.check_set_up, victim.check_rollback))()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
