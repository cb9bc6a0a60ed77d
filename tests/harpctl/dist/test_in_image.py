# SPDX-License-Identifier: Apache-2.0
"""The step of the layer's Dockerfile, on images of both families, with and without another plugin."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harpctl.facts.plugin_files import NAME, RCCL_NAME, RCCL_SUFFIXED, SUFFIXED

ADDED = "usr/lib/x86_64-linux-gnu"  # where the layer has the library
NAMES = (NAME, SUFFIXED, RCCL_NAME, RCCL_SUFFIXED)
HARP, OTHER = b"HARP", b"another plugin"


def image_of(root: Path, family: str) -> Path:
    """Make an image with the layer in it; return the folder that its loader searches."""
    (root / ADDED).mkdir(parents=True)
    (root / ADDED / SUFFIXED).write_bytes(HARP)
    (root / "etc").mkdir()
    if family == "debian":
        (root / "etc/debian_version").write_text("12.1\n")
        return root / ADDED
    (root / "usr/lib64").mkdir()
    return root / "usr/lib64"


def run_in_image(project: Path, image: Path) -> str:
    words = [str(project / "dist/in-image"), str(image)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("family", ["debian", "rhel"])
def test_both_names_where_they_are_free(root: Path, tmp_path: Path, family: str) -> None:
    libraries = image_of(tmp_path, family)
    assert f"HARP is /{libraries.relative_to(tmp_path)}/{NAME}\n" in run_in_image(root, tmp_path)
    assert {path.name: path.read_bytes() for path in libraries.iterdir()} == dict.fromkeys(NAMES, HARP)
    assert "is there already" in run_in_image(root, tmp_path)


@pytest.mark.parametrize("family", ["debian", "rhel"])
@pytest.mark.parametrize("is_link", [False, True])
def test_another_plugin_stays(root: Path, tmp_path: Path, family: str, is_link: bool) -> None:
    libraries = image_of(tmp_path, family)
    plain = libraries / NAME
    if is_link:
        plain.symlink_to("/opt/amazon/none.so")
    else:
        plain.write_bytes(OTHER)
    assert f"{NAME} is there already and stays" in run_in_image(root, tmp_path)
    assert plain.is_symlink() if is_link else plain.read_bytes() == OTHER
    assert (libraries / SUFFIXED).read_bytes() == HARP
