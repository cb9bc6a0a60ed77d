# SPDX-License-Identifier: Apache-2.0
"""What the tests of the self-contained file share: a host that has no Python."""

from __future__ import annotations

import shutil

import pytest

TOOLS = (  # what a host surely has: no Python among it
    *("bash", "sh", "cat", "chmod", "cut", "grep", "gzip", "head", "id", "ls", "mkdir", "mktemp", "mv"),
    *("readlink", "rm", "rmdir", "sed", "sha256sum", "sync", "tail", "tar", "tr", "uname", "wc"),
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a host without Python."""
    folder = tmp_path_factory.mktemp("path")
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name} here"))
    return {"PATH": str(folder), "TMPDIR": str(folder.parent)}
