# SPDX-License-Identifier: Apache-2.0
"""`harpctl rollback` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from harpctl.change.apply import apply_plan
from harpctl.change.steps import Group, Plan, WriteFile
from harpctl.cli import app
from harpctl.console import NoProgress
from harpctl.host.host import Host
from tests.harpctl.change.site import make_tree, take_snapshot


def set_up(root: Path) -> str:
    plan = Plan(groups=(Group(name="file", steps=(WriteFile(path="/etc/script", data=b"new\n"),)),))
    return apply_plan(plan, Host(root), what="setup", progress=NoProgress())


def run_rollback(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["rollback", *arguments], input=None)
    return done.exit_code, done.stdout, done.stderr


def test_nothing_to_undo(tmp_path: Path) -> None:
    make_tree(tmp_path)
    for options in ((), ("--list",), ("--dry-run",)):
        assert run_rollback("--root", str(tmp_path), *options) == (0, "There is nothing to undo.\n", "")
    code, out, _err = run_rollback("--root", str(tmp_path), "--json")
    assert (code, json.loads(out)["undone"]) == (0, [])


def test_list_dry_run_and_rollback(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    name = set_up(tmp_path)
    now = take_snapshot(tmp_path)
    code, out, _err = run_rollback("--root", str(tmp_path), "--list")
    assert code == 0
    assert out.splitlines()[0].split()[:3] == [name, "setup", "done"]
    assert out.splitlines()[1] == "    write /etc/script"
    code, out, _err = run_rollback("--root", str(tmp_path), "--list", "--json")
    assert json.loads(out)[0]["steps"] == ["write /etc/script"]
    code, out, _err = run_rollback("--root", str(tmp_path), "--dry-run")
    assert (code, out.splitlines()[0]) == (0, "would restore /etc/script")
    assert "-new\n+#!/bin/sh\n" in out
    assert take_snapshot(tmp_path) == now
    code, out, err = run_rollback("--root", str(tmp_path), "--yes", "1")
    assert (code, out) == (0, "restore /etc/script: done\n")
    assert f"undoing setup {name}: done" in err
    assert take_snapshot(tmp_path) == before


def test_a_changed_file(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    set_up(tmp_path)
    (tmp_path / "etc/script").write_text("mine\n")
    code, _out, err = run_rollback("--root", str(tmp_path))
    assert code == 5
    assert "kept /etc/script: somebody changed it since.\n" in err
    assert "Saved original: /var/lib/harp/journal/blobs/" in err
    assert "  -#!/bin/sh\n  +mine\n" in err
    assert f"harpctl rollback --force --root {tmp_path}" in err
    code, out, _err = run_rollback("--root", str(tmp_path), "--json")
    assert code == 5
    assert json.loads(out)["kept"][0]["path"] == "/etc/script"
    assert run_rollback("--root", str(tmp_path), "--force")[0] == 0
    assert take_snapshot(tmp_path) == before


def test_an_unknown_transaction(tmp_path: Path) -> None:
    make_tree(tmp_path)
    set_up(tmp_path)
    code, _out, err = run_rollback("--root", str(tmp_path), "17")
    assert code == 2
    assert "There is no transaction 17" in err


def test_no_such_root(tmp_path: Path) -> None:
    code, _out, err = run_rollback("--root", str(tmp_path / "nowhere"))
    assert code == 2
    assert "there is no such directory" in err
