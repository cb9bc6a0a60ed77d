# SPDX-License-Identifier: Apache-2.0
"""Builds all packages into dist/out, with a bill of materials and checksums: `make dist`.

The same sources, built by the same compiler, give the same bytes in any folder.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dist.deb import build_deb, build_debug_deb, build_lab_deb
from dist.make import HERE, TOP, built, pack, say
from dist.names import HERE as THIS
from dist.names import MACHINES, plain_version, triplet
from dist.rpm import LIBRARIES, build_rpm
from dist.sbom import write_sbom
from dist.tree import objcopy, stage_tree
from dist.wheel import build_pure_wheels, build_wheels
from harpctl.build_info import build_version
from harpctl.facts.elf import inspect_elf
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
def staged(cache: Path, libraries: str, machine: str) -> Iterator[Path]:
    """Lay a tree out for as long as packages are made of it."""
    with tempfile.TemporaryDirectory(prefix="harp-tree-") as name:
        tree = Path(name) / "root"
        tree.mkdir()
        stage_tree(tree, cache, libraries, machine)
        yield tree


def has(tool: str, package: str, made: str) -> bool:
    """Say whether a tool is here; where it is not, what is not made."""
    if shutil.which(tool):
        return True
    say(f"notice: {tool} is not here, so no package of {made} is made; install {package}")
    return False


def build_layer(tree: Path, out: Path, machine: str) -> None:
    """Pack a staged tree as a layer for `ADD` or `tar -x`; the files for docker take that of this machine."""
    target = out / f"harp-{plain_version()}-{machine}-layer.tar.gz"
    target.write_bytes(pack(tree))
    if machine != THIS:
        return
    for name, text in (("Dockerfile", DOCKERFILE), ("installer.Dockerfile", INSTALLER)):
        (out / name).write_text(text.format(layer=target.name), encoding="utf-8")


def write_sums(out: Path) -> None:
    """Write the checksums of all files of a folder, as sha256sum -c reads them."""
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")


def check_built(machine: str) -> None:
    """Refuse to pack a library that was built from another state of the sources."""
    file = built(machine) / NAME
    with file.open("rb") as stream:
        found = inspect_elf(stream, str(file)).version
    if found != build_version():
        raise SystemExit(
            f"dist: {file} is HARP {found}, and the sources are {build_version()}; run: ./harp_setup dist"
        )


def build_for(machine: str, wanted: list[str], out: Path, cache: Path) -> None:
    """Build the packages for one machine, but for the one file."""
    has_objcopy = has(objcopy(machine), "binutils", f"debug information for {machine}")
    if "wheel" in wanted:
        build_wheels(out, machine)
    if {"deb", "layer"} & set(wanted):
        with staged(cache, f"usr/lib/{triplet(machine)}", machine) as tree:
            if "deb" in wanted and has("dpkg-deb", "dpkg", "Debian"):
                build_deb(tree, out, machine)
                build_lab_deb(out, machine)
                if has_objcopy:
                    build_debug_deb(out, machine)
            if "layer" in wanted:
                build_layer(tree, out, machine)
    if "rpm" in wanted and has("rpmbuild", "rpm", "rpm"):
        with staged(cache, LIBRARIES, machine) as tree:
            build_rpm(tree, out, machine, debug=has_objcopy)


def built_machines() -> list[str]:
    """Return the machines that the plugin is built for: this one, and those with a compiler."""
    found = [machine for machine in MACHINES if machine == THIS or (built(machine) / NAME).is_file()]
    for machine in found:
        check_built(machine)
    if missing := ", ".join(machine for machine in MACHINES if machine not in found):
        say(f"notice: nothing is built for {missing}, so no packages for it are made")
    return found


def main() -> None:
    """Build what --only names, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "out")
    kinds = ("file", "wheel", "deb", "rpm", "layer")
    parser.add_argument("--only", choices=kinds, action="append", help="repeatable; else all")
    options = parser.parse_args()
    wanted = options.only or list(kinds)
    machines = built_machines()
    cache = TOP / ".cache" / "dist"
    if options.out.exists():
        shutil.rmtree(options.out)
    options.out.mkdir(parents=True)
    if "file" in wanted:
        file = options.out / "harp_setup.sh"
        subprocess.run([sys.executable, "-m", "dist.make", "--out", str(file)], cwd=TOP, check=True)
    if "wheel" in wanted:
        build_pure_wheels(options.out)
    for machine in machines:
        build_for(machine, wanted, options.out, cache)
    write_sbom(options.out, cache)
    write_sums(options.out)
    for path in sorted(options.out.iterdir()):
        say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
