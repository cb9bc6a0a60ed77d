# SPDX-License-Identifier: Apache-2.0
"""Builds all packages into dist/out, with a bill of materials and checksums: `make dist`.

The same sources, built by the same compiler, give the same bytes in any folder.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dist.deb import build_deb, build_debug_deb, build_lab_deb
from dist.make import BUILD, HERE, TOP, pack, say
from dist.names import plain_version, triplet
from dist.rpm import LIBRARIES, build_rpm
from dist.sbom import write_sbom
from dist.tree import stage_tree
from dist.wheel import build_wheels
from harpctl.build_info import build_version
from harpctl.facts.elf import inspect
from harpctl.facts.plugin_files import NAME

SUMS = "SHA256SUMS"
DOCKERFILE = """\
FROM your-training-image
ADD {layer} /
RUN ["/usr/lib/harp/in-image"]
ENV NCCL_NET_PLUGIN=harp
"""
INSTALLER = """\
FROM python:3.12-slim-bookworm
ADD {layer} /
ENTRYPOINT ["/usr/bin/harpctl"]
"""


@contextmanager
def staged(cache: Path, libraries: str) -> Iterator[Path]:
    """Lay a tree out for as long as packages are made of it."""
    with tempfile.TemporaryDirectory(prefix="harp-tree-") as name:
        tree = Path(name) / "root"
        tree.mkdir()
        stage_tree(tree, cache, libraries)
        yield tree


def has(tool: str, package: str, made: str) -> bool:
    """Say whether a tool is here; where it is not, what is not made."""
    if shutil.which(tool):
        return True
    say(f"notice: {tool} is not here, so no package of {made} is made; install {package}")
    return False


def build_layer(tree: Path, out: Path) -> Path:
    """Pack a staged tree as a layer for `ADD` or `tar -x`; return its path."""
    target = out / f"harp-{plain_version()}-{platform.machine()}-layer.tar.gz"
    target.write_bytes(pack(tree))
    for name, text in (("Dockerfile", DOCKERFILE), ("installer.Dockerfile", INSTALLER)):
        (out / name).write_text(text.format(layer=target.name), encoding="utf-8")
    return target


def write_sums(out: Path) -> None:
    """Write the checksums of all files of a folder, as sha256sum -c reads them."""
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")


def check_built() -> None:
    """Refuse to pack a library that was built from another state of the sources."""
    file = BUILD / NAME
    with file.open("rb") as stream:
        built = inspect(stream, str(file)).version
    if built != build_version():
        raise SystemExit(
            f"dist: {file} is HARP {built}, and the sources are {build_version()}; run: ./harp_setup dist"
        )


def main() -> None:
    """Build what --only names, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "out")
    kinds = ("file", "wheel", "deb", "rpm", "layer")
    parser.add_argument("--only", choices=kinds, action="append", help="repeatable; else all")
    options = parser.parse_args()
    wanted = options.only or list(kinds)
    check_built()
    has_objcopy = has("objcopy", "binutils", "debug information")
    cache = TOP / ".cache" / "dist"
    if options.out.exists():
        shutil.rmtree(options.out)
    options.out.mkdir(parents=True)
    if "file" in wanted:
        file = options.out / "harp_setup.sh"
        subprocess.run([sys.executable, "-m", "dist.make", "--out", str(file)], cwd=TOP, check=True)
    if "wheel" in wanted:
        build_wheels(options.out)
    if {"deb", "layer"} & set(wanted):
        with staged(cache, f"usr/lib/{triplet()}") as tree:
            if "deb" in wanted and has("dpkg-deb", "dpkg", "Debian"):
                build_deb(tree, options.out)
                build_lab_deb(options.out)
                if has_objcopy:
                    build_debug_deb(options.out)
            if "layer" in wanted:
                build_layer(tree, options.out)
    if "rpm" in wanted and has("rpmbuild", "rpm", "rpm"):
        with staged(cache, LIBRARIES) as tree:
            build_rpm(tree, options.out, debug=has_objcopy)
    write_sbom(options.out, cache)
    write_sums(options.out)
    for path in sorted(options.out.iterdir()):
        say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
