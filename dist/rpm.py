# SPDX-License-Identifier: Apache-2.0
"""The rpm packages: the files of the Debian ones, with the library where Red Hat's family has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from dist.make import TAGS, TIME
from dist.manual import PAGES
from dist.names import plain_version
from dist.tree import HOME, JOURNAL, stage_debug, stage_lab_tree

LIBRARIES = "usr/lib64"
SPEC = """\
Name: harp
Group: System Environment/Libraries
Packager: The HARP contributors <harp@packages.invalid>
Version: {version}
Release: 1
Summary: User-space network transport for NCCL
License: Apache-2.0 AND (MIT OR GPL-2.0-only)
AutoReqProv: no
Requires: glibc >= 2.27
Requires: ((python3 >= 3.10 with python3 < {too_new}) or python3.11 or python3.12)

%description
HARP is a library that NCCL loads, which carries its traffic between hosts
over ordinary Ethernet by a reliable protocol of its own. With it come
harpctl, which prepares a host, checks it and undoes it, and harp-perf, which
measures. The library is used where NCCL_NET_PLUGIN=harp is set, or after
'harpctl install --name plain'.

%package lab
Summary: Benchmarks and lab of HARP
Group: System Environment/Libraries
License: Apache-2.0
AutoReqProv: no
Requires: harp = %{{version}}-%{{release}}
Recommends: iproute, iproute-tc, nftables, ethtool

%description lab
The commands demo, bench, lab and dissector of harpctl: they measure HARP
between hosts, or between network namespaces with caps, loss and failures.

{debug_package}%install
cp -a {trees} %{{buildroot}}

%preun -p <lua>
if tonumber(arg[2]) == 0 and posix.dir("{journal}") and #posix.dir("{journal}") > 2 then
  error("harpctl has changed this host, and only harpctl can undo that. First run: harpctl rollback", 0)
end

%files
/usr/bin/harpctl
/usr/bin/harp-perf
/usr/lib/harp
/usr/lib64/libnccl-net-harp.so
/usr/lib64/librccl-net-harp.so
/usr/share/bash-completion/completions/harpctl
/usr/share/fish/vendor_completions.d/harpctl.fish
/usr/share/zsh/site-functions/_harpctl
%doc /usr/share/man/man1/*
%doc /usr/share/doc/harp
{not_lab}

%files lab
{lab}

{debug_files}%changelog
* {date} The HARP contributors <harp@packages.invalid> - {version}-1
- What changed is in CHANGELOG.md of the documentation
"""
DEBUG_PACKAGE = """\
%package debuginfo
Summary: Debug information for harp
Group: Development/Debug
AutoReqProv: no
Requires: harp = %{version}-%{release}

%description debuginfo
What debuggers need for the library and for harp-perf of the package harp.

"""
DEBUG_FILES = """\
%files debuginfo
/usr/lib/debug/.build-id/*/*

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


def build_rpm(tree: Path, out: Path, machine: str, *, debug: bool) -> None:
    """Make the packages of a tree that was staged with LIBRARIES."""
    with tempfile.TemporaryDirectory(prefix="harp-rpm-") as name:
        top = Path(name)
        trees = [tree, top / "lab", *([top / "debug"] if debug else [])]
        stage_lab_tree(top / "lab", machine)
        lab = [f"/{HOME}/app/harplab", *(f"/{PAGES}/{page.name}" for page in (top / "lab" / PAGES).iterdir())]
        if debug:
            stage_debug(top / "debug", machine)
        functions = tree / "usr" / "share" / "zsh"
        (functions / "vendor-completions").rename(functions / "site-functions")  # where this family's zsh looks
        spec = top / "harp.spec"
        words = {
            "version": plain_version(),
            "trees": " ".join(f"'{folder}/.'" for folder in trees),
            "lab": "\n".join(lab),
            "not_lab": "\n".join(f"%exclude {path}" for path in lab),
            "debug_package": DEBUG_PACKAGE if debug else "",
            "debug_files": DEBUG_FILES if debug else "",
            "journal": JOURNAL,
            "too_new": f"3.{int(TAGS[-1][3:]) + 1}",
            "date": time.strftime("%a %b %d %Y", time.gmtime(TIME)),
        }
        spec.write_text(SPEC.format(**words), encoding="utf-8")
        argv = ["rpmbuild", "-bb", "--quiet", "--target", machine]
        for macro, value in {**MACROS, "_topdir": str(top)}.items():
            argv += ["--define", f"{macro} {value}"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME)}
        done = subprocess.run([*argv, str(spec)], capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise SystemExit(f"dist: the rpm packages can't be built:\n{done.stderr.strip()}")
        for package in (top / "RPMS").rglob("*.rpm"):
            shutil.copy(package, out / package.name)
