# SPDX-License-Identifier: Apache-2.0
"""The Debian package: library, harp-perf, and harpctl with its Python packages, for the host's Python.

The library has its second name, so that no other plugin is touched. `harpctl install --name plain`
gives it the plain one. The package stays while harpctl's changes to the host do, which only harpctl can undo.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from dist.make import BUILD, HERE, TAGS, TIME, TOP, stage_packages
from dist.names import debian_machine, plain_version, triplet
from harpctl.identity import PACKAGED, WIRE_DOC, build_version
from harpctl.plugin.paths import NAME, SUFFIXED

HOME = "usr/lib/harp"
PROGRAM = "usr/bin/harpctl"
JOURNAL = "/var/lib/harp/journal"
CONTROL = """\
Package: harp
Version: {version}
Architecture: {machine}
Maintainer: the HARP contributors <harp@localhost>
Installed-Size: {size}
Depends: libc6 (>= 2.27), python3 (>= 3.10)
Recommends: iproute2, ethtool
Section: net
Priority: optional
Description: user-space network transport for NCCL
 HARP is a library that NCCL loads, which carries its traffic between hosts over
 ordinary Ethernet by a reliable protocol of its own. With it come harpctl,
 which prepares a host, checks it and undoes it, and harp-perf, which measures.
 .
 The library is {library}. It is used where
 NCCL_NET_PLUGIN=harp is set, or after 'harpctl install --name plain'.
"""
LAUNCHER = """\
#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
HARPCTL_PROGRAM=/{program} exec /{home}/bin/harpctl "$@"
"""
PRERM = """\
#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e
if [ "$1" = remove ] && [ -n "$(ls -A {journal} 2>/dev/null)" ]; then
  echo "harp: harpctl has changed this host, and only harpctl can undo that. First run: harpctl rollback" >&2
  exit 1
fi
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2026 the HARP contributors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

Files: {home}/ext/* {home}/app/*
Copyright: their authors
License: as-named-in-their-dist-info
 These Python packages are under the MIT, BSD, Apache-2.0 and public domain
 licences that their dist-info folders hold.
"""


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def stage_tree(stage: Path, cache: Path, folder: str) -> None:
    """Lay out the files of a host, with the library in a folder of it: what packages and layer hold."""
    home = stage / HOME
    home.mkdir(parents=True)
    stage_packages(TAGS, home, cache)
    shutil.copytree(
        TOP / "harpctl", home / "app" / "harpctl", ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    data = home / "app" / "harpctl" / "data"
    data.mkdir()
    libraries = stage / folder
    libraries.mkdir(parents=True)
    shutil.copy(BUILD / NAME, libraries / SUFFIXED)
    (data / NAME).symlink_to(os.path.relpath(libraries / SUFFIXED, data))
    (stage / "usr" / "bin").mkdir()
    shutil.copy(BUILD / "harp-perf", stage / "usr" / "bin" / "harp-perf")
    (data / "harp-perf").symlink_to(os.path.relpath(stage / "usr" / "bin" / "harp-perf", data))
    shutil.copy(TOP / "docs" / WIRE_DOC, data / WIRE_DOC)
    _write(data / PACKAGED, build_version() + "\n")
    (home / "bin").mkdir()
    shutil.copy(HERE / "launch.sh", home / "bin" / "harpctl")
    (home / "bin" / "harpctl").chmod(0o755)
    shutil.copy(HERE / "run.py", home / "run.py")
    _write(stage / PROGRAM, LAUNCHER.format(program=PROGRAM, home=HOME), 0o755)
    docs = stage / "usr" / "share" / "doc" / "harp"
    _write(docs / "copyright", COPYRIGHT.format(home=HOME))
    for name in ("NOTICE", "CHANGELOG.md"):
        shutil.copy(TOP / name, docs / name)
    for path in [stage, *stage.rglob("*")]:
        if not path.is_symlink():
            is_open = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_open else 0o644)
            os.utime(path, (TIME, TIME))


def build_deb(tree: Path, out: Path) -> Path:
    """Make the package of a staged tree; return its path."""
    target = out / f"harp_{plain_version()}_{debian_machine()}.deb"
    with tempfile.TemporaryDirectory(prefix="harp-deb-") as name:
        stage = Path(name) / "root"
        shutil.copytree(tree, stage, symlinks=True)
        files = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
        size = sum(path.stat().st_size for path in files) // 1024
        sums = [f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(stage)}\n" for p in files]  # noqa: S324 - dpkg's own
        library = f"/usr/lib/{triplet()}/{SUFFIXED}"
        words = {"version": plain_version(), "machine": debian_machine(), "size": size, "library": library}
        _write(stage / "DEBIAN" / "control", CONTROL.format(**words))
        _write(stage / "DEBIAN" / "md5sums", "".join(sums))
        _write(stage / "DEBIAN" / "prerm", PRERM.format(journal=JOURNAL), 0o755)
        argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(stage), str(target)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME)}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise SystemExit(f"dist: the Debian package can't be built:\n{done.stderr.strip()}")
    return target
