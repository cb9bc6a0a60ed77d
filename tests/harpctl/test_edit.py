# SPDX-License-Identifier: Apache-2.0
"""`harpctl edit`: what it changes in a file, what it refuses, and that rollback restores every byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app

CONF = b"# of eth1\r\n[eni]\r\ninterface = eth1\r\nmtu=9000\r\n\r\n[engine]\r\ncores = 2-3\r\n"
FILE = "/etc/ztcp0.conf"


def run_edit(root: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [words[0], "--root", str(root), *words[1:]])
    return done.exit_code, done.output


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ztcp0.conf").write_bytes(CONF)
    (tmp_path / "etc/ztcp0.conf").chmod(0o640)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--set", "mtu=1500"), CONF.replace(b"mtu=9000", b"mtu=1500")),
        (("--set", "numa=1"), CONF.replace(b"[eni]\r\n", b"[eni]\r\nnuma = 1\r\n")),
        (("--set", "paths=4"), CONF + b"\r\n[transport]\r\npaths = 4\r\n"),
        (("--set", "NCCL_NET=HARP"), CONF + b"NCCL_NET=HARP\r\n"),
        (("--unset", "mtu", "--unset", "none"), CONF.replace(b"mtu=9000\r\n", b"")),
        (("--comment", "4"), CONF.replace(b"mtu", b"# mtu")),
        (("--comment", "1"), CONF),
    ],
)
def test_what_changes(root: Path, words: tuple[str, ...], expected: bytes) -> None:
    path = root / "etc/ztcp0.conf"
    assert run_edit(root, "edit", FILE, "--dry-run", *words)[0] == 0
    assert path.read_bytes() == CONF
    assert run_edit(root, "edit", FILE, *words)[0] == 0
    assert path.read_bytes() == expected
    assert path.stat().st_mode & 0o777 == 0o640
    assert run_edit(root, "edit", FILE, *words) == (0, f"{FILE} is so already.\n") or "--comment" in words
    assert run_edit(root, "rollback")[0] == 0
    assert path.read_bytes() == CONF


def test_the_plan_is_a_patch(root: Path) -> None:
    (root / "etc/x.conf").write_bytes(b"\tone = 1\n\ttwo = 2\n")
    code, output = run_edit(root, "edit", "/etc/x.conf", "--set", "one=3", "--dry-run")
    assert code == 0
    subprocess.run(["patch", "-p1", "-d", str(root)], input=output, text=True, check=True, capture_output=True)
    assert (root / "etc/x.conf").read_bytes() == b"\tone = 3\n\ttwo = 2\n"


def test_a_file_is_moved_and_removed(root: Path) -> None:
    moved = root / "etc/bak.conf"
    assert run_edit(root, "edit", FILE, "--move-to", "/etc/bak.conf")[0] == 0
    assert moved.read_bytes() == CONF
    assert run_edit(root, "edit", "/etc/bak.conf", "--delete")[0] == 0
    assert not moved.exists()
    assert run_edit(root, "rollback")[0] == 0
    assert (root / "etc/ztcp0.conf").read_bytes() == CONF


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((FILE,), "Say what to do"),
        ((FILE, "--delete", "--set", "mtu=1"), "Say what to do"),
        ((FILE, "--set", "mtu"), "no KEY=VALUE"),
        ((FILE, "--set", "mtu=1\nmtu=2"), "no KEY=VALUE"),
        ((FILE, "--comment", "99"), "has 7 lines"),
        ((FILE, "--move-to", "/etc/ztcp0.conf"), "is there already"),
        (("ztcp0.conf", "--delete"), "must be absolute"),
        (("/etc/none.conf", "--set", "mtu=1"), "is not there"),
    ],
)
def test_what_is_refused(root: Path, words: tuple[str, ...], said: str) -> None:
    code, output = run_edit(root, "edit", *words)
    assert code != 0
    assert said in output
    assert (root / "etc/ztcp0.conf").read_bytes() == CONF
