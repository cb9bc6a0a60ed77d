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
    """A source tree with nothing but what determines the version."""
    folder = tmp_path / "tree"
    for name in ("plugin/version.sh", "harpctl/__init__.py", ".gitattributes"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    return folder


def git(tree: Path, *words: str) -> str:
    own = ("-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv = ["git", *own, "-C", str(tree), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=clean).stdout.strip()


def version(tree: Path) -> str:
    argv = ["sh", str(tree / "plugin" / "version.sh")]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def commit(tree: Path) -> str:
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "all")
    return git(tree, "rev-parse", "--short=7", "HEAD")


def test_of_a_checkout(tree: Path) -> None:
    short = commit(tree)
    assert version(tree) == f"{__version__}-0-g{short}"
    git(tree, "commit", "-q", "--allow-empty", "-m", "later")
    assert version(tree).startswith(f"{__version__}-1-g")
    git(tree, "tag", "v7.8.9")
    assert version(tree) == "7.8.9"
    (tree / "harpctl" / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    assert version(tree) == "7.8.9-dirty"
    git(tree, "commit", "-qam", "more")
    assert re.fullmatch(r"7\.8\.9-1-g[0-9a-f]{7}", version(tree))


def test_of_a_copy_without_git_even_within_another_checkout(tree: Path) -> None:
    assert version(tree) == __version__
    git(tree.parent, "init", "-q")
    assert version(tree) == __version__


def test_of_an_archive(tree: Path, tmp_path: Path) -> None:
    short = commit(tree)
    git(tree, "archive", "-o", str(tmp_path / "a.tar"), "HEAD")
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xf", str(tmp_path / "a.tar"), "-C", str(unpacked)], check=True)
    assert version(unpacked) == f"{__version__}-g{short}"


def test_of_this_harpctl() -> None:
    assert build_version().split("-")[0].count(".") == 2
