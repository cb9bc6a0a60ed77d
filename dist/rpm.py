# SPDX-License-Identifier: Apache-2.0
"""The rpm package: the files of the Debian one, with the library where Red Hat's family has it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from dist.deb import JOURNAL
from dist.make import TIME
from dist.names import plain_version

LIBRARIES = "usr/lib64"
SPEC = """\
Name: harp
Version: {version}
Release: 1
Summary: User-space network transport for NCCL
License: Apache-2.0 AND (MIT OR GPL-2.0-only)
AutoReqProv: no
Requires: glibc >= 2.27
Requires: (python3 >= 3.10 or python3.11 or python3.12)

%description
HARP is a library that NCCL loads, which carries its traffic between hosts over
ordinary Ethernet by a reliable protocol of its own. With it come harpctl, which
prepares a host, checks it and undoes it, and harp-perf, which measures. The
library is used where NCCL_NET_PLUGIN=harp is set, or after
'harpctl install --name plain'.

%install
cp -a {tree}/. %{{buildroot}}

%preun -p <lua>
if tonumber(arg[2]) == 0 and posix.dir("{journal}") and #posix.dir("{journal}") > 2 then
  error("harpctl has changed this host, and only harpctl can undo that. First run: harpctl rollback", 0)
end

%files
/usr/bin/harpctl
/usr/bin/harp-perf
/usr/lib/harp
/usr/lib64/libnccl-net-harp.so
%doc /usr/share/doc/harp
"""
MACROS = {
    "__os_install_post": "%{nil}",  # nothing is stripped or compiled: it is what the other packages hold
    "_build_id_links": "none",
    "debug_package": "%{nil}",
    "_buildhost": "localhost",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "_binary_payload": "w9.gzdio",
}


def build_rpm(tree: Path, out: Path) -> Path:
    """Make the package of a tree that was staged with LIBRARIES; return its path."""
    with tempfile.TemporaryDirectory(prefix="harp-rpm-") as name:
        top = Path(name)
        spec = top / "harp.spec"
        words = {"version": plain_version(), "tree": tree, "journal": JOURNAL}
        spec.write_text(SPEC.format(**words), encoding="utf-8")
        argv = ["rpmbuild", "-bb", "--quiet", "--target", platform.machine()]
        for macro, value in {**MACROS, "_topdir": str(top)}.items():
            argv += ["--define", f"{macro} {value}"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME)}
        done = subprocess.run(
            [*argv, str(spec)], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            raise SystemExit(f"dist: the rpm package can't be built:\n{done.stderr.strip()}")
        (package,) = (top / "RPMS").rglob("*.rpm")
        return Path(shutil.copy(package, out / package.name))
