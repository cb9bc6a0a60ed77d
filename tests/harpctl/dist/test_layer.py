# SPDX-License-Identifier: Apache-2.0
"""The container layer, laid out, is the image of docs/how-to/deploy/installer.yaml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dist.names import triplet
from harpctl.build_info import build_version
from harpctl.facts.plugin_files import SUFFIXED
from tests.harpctl.dist.conftest import only_file_for

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]


def test_layer_is_the_installers_image(root: Path, tmp_path: Path) -> None:
    """The image's program installs the library for a node's containers."""
    out, image, node = tmp_path / "out", tmp_path / "image", tmp_path / "node"
    image.mkdir()
    node.mkdir()
    words = [sys.executable, "-m", "dist.out", "--out", str(out), "--only", "layer"]
    subprocess.run(words, cwd=root, check=True)
    layer = only_file_for(out, "harp-*-layer.tar.gz")
    lines = (out / "installer.Dockerfile").read_text(encoding="utf-8").splitlines()
    assert lines[1:] == [f"ADD {layer.name} /", 'ENTRYPOINT ["/usr/bin/harpctl"]']
    lines = (out / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert lines[1:] == [f"ADD {layer.name} /", 'RUN ["/usr/lib/harp/in-image"]', "ENV NCCL_NET_PLUGIN=harp"]
    subprocess.run(["tar", "-xzf", str(layer), "-C", str(image)], check=True)
    assert (image / "usr" / "lib" / "harp" / "in-image").stat().st_mode & 0o111
    assert (image / "usr" / "bin" / "harpctl").stat().st_mode & 0o111
    assert not list(image.rglob("harplab"))
    program = image / "usr" / "lib" / "harp" / "bin" / "harpctl"
    done = subprocess.run([program, "node", "--root", node], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"HARP {build_version()} is installed" in done.stdout
    library = image / "usr" / "lib" / triplet() / SUFFIXED
    assert (node / "opt" / "harp" / "lib" / SUFFIXED).read_bytes() == library.read_bytes()
