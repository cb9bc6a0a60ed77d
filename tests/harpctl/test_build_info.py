# SPDX-License-Identifier: Apache-2.0
"""The version that harpctl, plugin and harp-perf report: as git describes the source, or without git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harpctl import __version__
from harpctl.build_info import build_version


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """Provide a source tree with nothing but what determines the version."""
    folder = tmp_path / "tree"
    for name in ("plugin/version.sh", "harpctl/__init__.py", ".gitattributes"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    return folder


def run_git(tree: Path, *words: str) -> str:
    own = ("-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv = ["git", *own, "-C", str(tree), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=clean).stdout.strip()


def run_version(tree: Path) -> str:
    argv = ["sh", str(tree / "plugin" / "version.sh")]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def commit_all(tree: Path) -> str:
    run_git(tree, "init", "-q")
    run_git(tree, "add", "-A")
    run_git(tree, "commit", "-qm", "all")
    return run_git(tree, "rev-parse", "--short=7", "HEAD")


def test_version_of_a_checkout(tree: Path) -> None:
    short = commit_all(tree)
    assert run_version(tree) == f"{__version__}-0-g{short}"
    run_git(tree, "commit", "-q", "--allow-empty", "-m", "later")
    assert run_version(tree).startswith(f"{__version__}-1-g")
    run_git(tree, "tag", "v7.8.9")
    assert run_version(tree) == "7.8.9"
    (tree / "harpctl" / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    assert run_version(tree) == "7.8.9-dirty"
    run_git(tree, "commit", "-qam", "more")
    assert re.fullmatch(r"7\.8\.9-1-g[0-9a-f]{7}", run_version(tree))


def test_of_a_copy_without_git_even_within_another_checkout(tree: Path) -> None:
    assert run_version(tree) == __version__
    run_git(tree.parent, "init", "-q")
    assert run_version(tree) == __version__


def test_of_an_archive(tree: Path, tmp_path: Path) -> None:
    short = commit_all(tree)
    run_git(tree, "archive", "-o", str(tmp_path / "a.tar"), "HEAD")
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xf", str(tmp_path / "a.tar"), "-C", str(unpacked)], check=True)
    assert run_version(unpacked) == f"{__version__}-g{short}"


def test_the_version_of_this_harpctl_has_three_numbers() -> None:
    assert build_version().split("-")[0].count(".") == 2
