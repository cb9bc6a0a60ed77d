# SPDX-License-Identifier: Apache-2.0
"""Applying: all of a plan or nothing of it, whatever fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harpctl.change.apply import apply_plan
from harpctl.change.steps import AnyStep, Group, MakeLink, Plan, Rename, Run, SetControl, WriteFile
from harpctl.console import NoProgress, Progress
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from tests.harpctl.change.site import (
    GRUB,
    PAGES,
    commands_of,
    make_host,
    make_plan,
    make_tree,
    run_killed,
    set_up,
    take_snapshot,
    undo_all,
)


def plan_of(*steps: AnyStep, guarded: bool = False) -> Plan:
    return Plan(groups=(Group(name="things", steps=steps, guarded=guarded),))


def apply_steps(host: Host, *steps: AnyStep) -> str:
    return apply_plan(plan_of(*steps), host, what="test", progress=NoProgress())


class FakeGuard:
    """A guard that records its calls; the host is reachable or not."""

    def __init__(self, *, reachable: bool) -> None:
        self.reachable = reachable
        self.calls: list[str] = []

    def start_timer(self, transaction: str, host: Host) -> None:
        assert not host.exists("/etc/guarded")
        self.calls.append(f"start {transaction[:4]}")

    def await_confirmation(self, progress: Progress) -> bool:
        del progress
        self.calls.append("await")
        return self.reachable

    def end_timer(self) -> None:
        self.calls.append("end")


class LineProgress(NoProgress):
    """Progress that keeps each line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, line: str) -> None:
        self.lines.append(line)


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path)
    assert set_up(make_host(tmp_path)).startswith("0001-")
    now = take_snapshot(tmp_path)
    assert set_up(make_host(tmp_path)) == ""
    assert take_snapshot(tmp_path) == now


def test_modes_and_owners_of_replaced_files_are_kept(tmp_path: Path) -> None:
    make_tree(tmp_path)
    secret = tmp_path / "etc/real.conf"
    if os.geteuid() == 0:
        os.chown(secret, 12, 34)
    before = secret.stat()
    apply_steps(make_host(tmp_path), WriteFile(path="/etc/linked.conf", data=b"new\n"))
    after = secret.stat()
    assert secret.read_bytes() == b"new\n"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert (tmp_path / "etc/linked.conf").is_symlink()


@pytest.mark.parametrize("command", ["update-grub", "add-entry", "add-rule", "reload"])
def test_a_command_that_fails(tmp_path: Path, command: str) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    host = make_host(tmp_path)
    plan = make_plan(host)
    runner = commands_of(host)
    good = runner.run
    state = {"left": 1}

    def fail_once(argv: list[str], timeout_s: float = 0) -> object:
        runner.failing = {command} if argv[0] == command and state["left"] else set()
        state["left"] -= bool(runner.failing)
        return good(argv, timeout_s)

    runner.run = fail_once  # type: ignore[method-assign, assignment]
    with pytest.raises(HarpError) as caught:
        apply_plan(plan, host, what="setup", progress=NoProgress())
    assert caught.value.message == f"`{command}` failed: {command}: it is broken. Nothing was changed."
    assert take_snapshot(tmp_path) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_any_write_that_fails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """One write after the other fails; what was done before is taken back each time."""
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    write = os.write
    points = 0
    while True:
        left = points

        def failing(fd: int, data: bytes) -> int:
            nonlocal left
            left -= 1
            if left == -1:
                write(fd, data[: len(data) // 2])
                raise OSError(number, os.strerror(number))
            return write(fd, data)

        monkeypatch.setattr(os, "write", failing)
        try:
            set_up(make_host(tmp_path))
            break
        except HarpError as error:
            problem = error
        finally:
            monkeypatch.setattr(os, "write", write)
        assert os.strerror(number) in problem.message
        assert "run this again" in problem.hint or "dmesg" in problem.hint
        assert take_snapshot(tmp_path) == before
        points += 1
    assert points > 30


def test_interrupted_from_the_keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)

    def press(_commands: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.harpctl.change.site.Commands.add_rule", press)
    with pytest.raises(HarpError, match=r"Interrupted\. Nothing was changed"):
        set_up(make_host(tmp_path))
    assert take_snapshot(tmp_path) == before


def test_a_defect_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    monkeypatch.setattr("tests.harpctl.change.site.Commands.add_rule", lambda _commands: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        set_up(make_host(tmp_path))
    assert take_snapshot(tmp_path) == before


def test_what_can_not_be_taken_back_is_named(tmp_path: Path) -> None:
    make_tree(tmp_path)
    host = make_host(tmp_path)
    commands_of(host).failing = {"del-rule", "reload"}
    with pytest.raises(HarpError, match=r"Not everything could be undone: .*`del-rule` failed") as caught:
        set_up(host)
    assert "harpctl rollback" in caught.value.hint
    commands_of(host).failing = set()
    assert undo_all(host).kept == ()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (WriteFile(path="/etc/script/x", data=b""), "Not a directory"),
        (WriteFile(path="/etc", data=b""), "Is a directory"),
        (WriteFile(path="/etc/loop", data=b""), "Too many levels of symbolic links"),
        (Rename(path="/nothing", to="/etc/x"), "No such file or directory"),
        (Rename(path="/etc/script", to="/etc/old.conf"), "File exists"),
        (MakeLink(path="/etc/systemd", target="x"), "Is a directory"),
        (SetControl(path="/proc/sys/nothing", value="1"), "No such file or directory"),
        (WriteFile(path="/etc/pipe", data=b""), "can't be kept for undoing"),
    ],
)
def test_steps_that_can_not_be_done(tmp_path: Path, step: AnyStep, message: str) -> None:
    make_tree(tmp_path)
    (tmp_path / "etc/loop").symlink_to("loop")
    os.mkfifo(tmp_path / "etc/pipe")
    before = take_snapshot(tmp_path)
    with pytest.raises(HarpError, match=message):
        apply_steps(make_host(tmp_path), WriteFile(path="/etc/first", data=b"1"), step)
    assert take_snapshot(tmp_path) == before


def test_a_command_for_a_directory_tree_is_refused_before_anything(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    with pytest.raises(HarpError, match="was to run for a directory tree"):
        apply_steps(Host(tmp_path), WriteFile(path="/etc/first", data=b"1"), Run(argv=("true",)))
    assert take_snapshot(tmp_path) == before


def test_links_do_not_lead_out_of_the_tree(tmp_path: Path) -> None:
    root, outside = tmp_path / "host", tmp_path / "etc"
    make_tree(root)
    outside.mkdir()
    (root / "etc/out").symlink_to("../../../../../etc")
    (root / "etc/absolute").symlink_to(str(outside))
    before = take_snapshot(root)
    host = make_host(root)
    apply_steps(host, WriteFile(path="/etc/out/a", data=b"1"), WriteFile(path="/etc/absolute/b", data=b"2"))
    assert list(outside.iterdir()) == []
    assert (root / "etc/a").read_bytes() == b"1"
    assert (root / str(outside)[1:] / "b").read_bytes() == b"2"
    undo_all(host)
    assert take_snapshot(root) == before


def test_a_control_that_falls_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)

    def write_control(host: Host, path: str, text: str) -> None:
        host.real(path).write_text(f"{min(int(text), 7)}\n")

    monkeypatch.setattr(Host, "write_control", write_control)
    host, progress = make_host(tmp_path), LineProgress()
    with pytest.raises(HarpError, match=f"{PAGES} reads '7' after '50' was written"):
        apply_steps(host, SetControl(path=PAGES, value="50"))
    assert take_snapshot(tmp_path) == before
    step = SetControl(path=PAGES, value="50", may_fall_short=True)
    apply_plan(plan_of(step), host, what="test", progress=progress)
    assert progress.lines == [f"{PAGES}: 7 of 50"]
    assert undo_all(host).kept == ()
    assert take_snapshot(tmp_path) == before


def test_a_guard_that_is_confirmed(tmp_path: Path) -> None:
    make_tree(tmp_path)
    guard = FakeGuard(reachable=True)
    plan = plan_of(WriteFile(path="/etc/guarded", data=b"1"), guarded=True)
    assert apply_plan(plan, make_host(tmp_path), what="test", progress=NoProgress(), guard=guard)
    assert guard.calls == ["start 0001", "await"]


def test_a_guard_that_is_not_confirmed(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    guard = FakeGuard(reachable=False)
    plan = plan_of(WriteFile(path="/etc/guarded", data=b"1"), guarded=True)
    with pytest.raises(HarpError, match="nobody confirmed in time"):
        apply_plan(plan, make_host(tmp_path), what="test", progress=NoProgress(), guard=guard)
    assert guard.calls == ["start 0001", "await", "end"]
    assert take_snapshot(tmp_path) == before


def test_guarded_steps_need_a_guard(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    plan = plan_of(WriteFile(path="/etc/guarded", data=b"1"), guarded=True)
    with pytest.raises(HarpError, match="nothing guards them"):
        apply_plan(plan, make_host(tmp_path), what="test", progress=NoProgress())
    assert take_snapshot(tmp_path) == before


def test_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only test with the real host: it is refused before anything is looked at closer."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HarpError, match="needs root") as caught:
        apply_steps(Host(), WriteFile(path="/nowhere/at/all", data=b""))
    assert caught.value.exit_code == ExitCode.REFUSED


def test_an_interrupted_transaction_is_undone_first(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    assert run_killed(lambda: set_up(make_host(tmp_path)), 60)
    with pytest.raises(HarpError, match="was interrupted") as caught:
        apply_steps(make_host(tmp_path), WriteFile(path="/etc/first", data=b"1"))
    assert "harpctl rollback 0001-" in caught.value.hint
    set_up(make_host(tmp_path))
    assert undo_all(make_host(tmp_path)).kept == ()
    assert take_snapshot(tmp_path) == before


def test_an_interrupted_transaction_with_a_changed_file(tmp_path: Path) -> None:
    """The first run names it and stops, the second leaves it as it is."""
    make_tree(tmp_path)
    assert run_killed(lambda: set_up(make_host(tmp_path)), 60)
    (tmp_path / GRUB[1:]).write_bytes(b"mine\n")
    with pytest.raises(HarpError, match=f"{GRUB}: somebody changed it since"):
        set_up(make_host(tmp_path))
    set_up(make_host(tmp_path))
    assert (tmp_path / GRUB[1:]).read_bytes().startswith(b"mine\n")
