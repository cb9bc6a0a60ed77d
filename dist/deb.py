# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: harp, harp-lab, and harp-dbgsym with the debug information.

harp stays while harpctl's changes to the host do, which only harpctl can undo.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tempfile
from email.utils import formatdate
from pathlib import Path

from dist.make import TAGS, TIME
from dist.names import DEBIAN, plain_version, triplet
from dist.tree import DOCS, HOME, JOURNAL, stage_debug, stage_lab_tree, write_text
from harpctl.facts.plugin_files import SUFFIXED

MAINTAINER = "The HARP contributors <harp@packages.invalid>"
DEBUG_NAME = "harp-dbgsym"
CONTROL = """\
Package: harp
Version: {version}
Architecture: {machine}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: libc6 (>= 2.27), python3 (>= 3.10), python3 (<< {too_new})
Recommends: iproute2, ethtool
Suggests: {debug_name}
Section: net
Priority: optional
Description: user-space network transport for NCCL
 HARP is a library that NCCL loads, which carries its traffic between hosts over
 ordinary Ethernet by a reliable protocol of its own. With it come harpctl,
 which prepares a host, checks it and undoes it, and harp-perf, which measures.
 .
 The library is {library}, and
 librccl-net-harp.so beside it for RCCL. It is used where NCCL_NET_PLUGIN=harp
 is set, or after 'harpctl install --name plain'.
"""
LAB_CONTROL = """\
Package: harp-lab
Version: {version}
Architecture: {machine}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: harp (= {version}), libc6 (>= 2.27)
Recommends: iproute2, nftables, ethtool
Section: net
Priority: optional
Description: benchmarks and lab of HARP
 The commands demo, bench, lab and dissector of harpctl: they measure HARP
 between hosts, or between network namespaces with caps, loss and failures.
"""
DEBUG_CONTROL = """\
Package: {debug_name}
Version: {version}
Architecture: {machine}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: harp (= {version})
Section: debug
Priority: optional
Auto-Built-Package: debug-symbols
Build-Ids: {ids}
Description: debug symbols for harp
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
 These Python packages are under the MIT, BSD, ISC, Apache-2.0 and public domain
 licences that their dist-info folders hold.
"""
CHANGES = """\
harp ({version}) unstable; urgency=medium

  * What changed is in CHANGELOG.md, beside this file.

 -- {maintainer}  {date}
"""
OVERRIDES = """\
# A plugin that programs open by its name and none links. With a SONAME, ldconfig would bring back one that
# `harpctl disable` has renamed, since it links the SONAME to any such file.
harp: sharedobject-in-library-directory-missing-soname
# The compiled parts of harpctl's Python packages are those of their official wheels.
harp: unstripped-binary-or-object [usr/lib/harp/*]
"""


def _zipped(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)


def _build(stage: Path, target: Path) -> None:
    """Add the sums to a staged package, and pack it."""
    files = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    content = [path for path in files if "DEBIAN" not in path.relative_to(stage).parts]
    sums = [f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(stage)}\n" for p in content]  # noqa: S324 - dpkg's own
    write_text(stage / "DEBIAN" / "md5sums", "".join(sums))
    argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(stage), str(target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"dist: {target.name} can't be built:\n{done.stderr.strip()}")


def _words(stage: Path, machine: str) -> dict[str, str]:
    """Return what all control files say."""
    files = (path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        "version": plain_version(),
        "machine": DEBIAN[machine],
        "maintainer": MAINTAINER,
        "debug_name": DEBUG_NAME,
        "size": str(sum(path.stat().st_size for path in files) // 1024),
    }


def build_deb(tree: Path, out: Path, machine: str) -> None:
    """Make the package of a staged tree."""
    with tempfile.TemporaryDirectory(prefix="harp-deb-") as name:
        stage = Path(name) / "root"
        shutil.copytree(tree, stage, symlinks=True)
        docs = stage / DOCS
        write_text(docs / "copyright", COPYRIGHT.format(home=HOME))
        changes = CHANGES.format(
            version=plain_version(), maintainer=MAINTAINER, date=formatdate(TIME, localtime=False)
        )
        (docs / "changelog.gz").write_bytes(_zipped(changes))
        write_text(stage / "usr" / "share" / "lintian" / "overrides" / "harp", OVERRIDES)
        library = f"/usr/lib/{triplet(machine)}/{SUFFIXED}"
        too_new = f"3.{int(TAGS[-1][3:]) + 1}"
        control = CONTROL.format(**_words(stage, machine), library=library, too_new=too_new)
        write_text(stage / "DEBIAN" / "control", control)
        write_text(stage / "DEBIAN" / "prerm", PRERM.format(journal=JOURNAL), 0o755)
        _build(stage, out / f"harp_{plain_version()}_{DEBIAN[machine]}.deb")


def build_lab_deb(out: Path, machine: str) -> None:
    """Make the package of the lab."""
    with tempfile.TemporaryDirectory(prefix="harp-deb-") as name:
        stage = Path(name) / "root"
        stage_lab_tree(stage, machine)
        _build_beside(stage, "harp-lab", LAB_CONTROL.format(**_words(stage, machine)), out, machine)


def build_debug_deb(out: Path, machine: str) -> None:
    """Make the package of the debug information."""
    with tempfile.TemporaryDirectory(prefix="harp-deb-") as name:
        stage = Path(name) / "root"
        ids = stage_debug(stage, machine)
        control = DEBUG_CONTROL.format(**_words(stage, machine), ids=" ".join(ids))
        _build_beside(stage, DEBUG_NAME, control, out, machine)


def _build_beside(stage: Path, name: str, control: str, out: Path, machine: str) -> None:
    """Pack a package that depends on harp and has its documentation."""
    docs = stage / "usr" / "share" / "doc"
    docs.mkdir(parents=True)
    (docs / name).symlink_to("harp")
    write_text(stage / "DEBIAN" / "control", control)
    _build(stage, out / f"{name}_{plain_version()}_{DEBIAN[machine]}.deb")
