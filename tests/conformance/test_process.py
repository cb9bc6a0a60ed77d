# SPDX-License-Identifier: Apache-2.0
"""Life in a process: reloads, forks, exits, signals."""

from __future__ import annotations

import fcntl
import signal
from pathlib import Path

import pytest

from tests.conformance.child import (
    ENVIRONMENT,
    NEW_AND_OLD,
    TIMEOUT_S,
    Start,
)
from tests.conformance.driver import Net, open_files


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_reload_leaks_nothing(version: int, engine: str, start: Start) -> None:
    rounds = start("reload", version, {**ENVIRONMENT, "HARP_ENGINE": engine}).end()
    settled, last = rounds[2], rounds[-1]  # by then the allocator's and the threads' own caches are there
    assert {round_["threads"] for round_ in rounds} == {1}
    assert {round_["files"] for round_ in rounds} == {rounds[0]["files"]}
    assert last["mappings"] - settled["mappings"] < len(rounds) - 3


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_teardown_in_nccls_order(version: int, start: Start) -> None:
    assert start("teardown", version).end() == [{"threads": 1}]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_fork(version: int, engine: str, start: Start) -> None:
    assert start("fork", version, {**ENVIRONMENT, "HARP_ENGINE": engine}).end() == [{"child": 0, "threads": 1}]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_exit_without_finalize(version: int, engine: str, start: Start) -> None:
    assert start("leave", version, {**ENVIRONMENT, "HARP_ENGINE": engine}).end() == [{"leaving": True}]


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_keep_their_action(number: signal.Signals, engine: str, start: Start) -> None:
    child = start("wait", 12, {**ENVIRONMENT, "HARP_ENGINE": engine})
    child.read_line()
    child.process.send_signal(number)
    assert child.process.wait(TIMEOUT_S) == -number


def _signal_actions() -> list[str]:
    status = Path("/proc/self/status").read_text().splitlines()
    return [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


def test_no_signal_is_handled(net: Net) -> None:
    before = _signal_actions()
    with net.pair() as pair:
        pair.transfer([b"hello"])
        assert _signal_actions() == before
    assert _signal_actions() == before


def test_files_are_closed_on_exec(net: Net) -> None:
    before = open_files()
    with net.pair() as pair:
        _, _, listen = net.listen()
        pair.transfer([b"hello"])
        ours = {fd: to for fd, to in open_files().items() if fd not in before}
        assert len(ours) >= 4
        kept = [to for fd, to in ours.items() if not fcntl.fcntl(int(fd), fcntl.F_GETFD) & fcntl.FD_CLOEXEC]
        assert kept == []
        net.close_listen(listen)
