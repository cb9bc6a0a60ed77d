# SPDX-License-Identifier: Apache-2.0
"""`harpctl report`: the support bundle."""

from __future__ import annotations

import platform
import re
import time
from pathlib import Path

from harpctl.bundle.collect import gather_bundle, make_manifest
from harpctl.command_line import FILE, command, json_option, option, root_option
from harpctl.console import ERR, OUT, print_json
from harpctl.doctor.archive import MANIFEST, write_archive
from harpctl.host.host import open_host


@command()
@option("--output", "-o", metavar="FILE", type=FILE, help="The file; else harp-report-HOST-TIME.tar.gz.")
@root_option
@json_option
def report(*, output: Path | None, root: Path | None, as_json: bool) -> None:
    """Write a support bundle: one file with what is needed to diagnose this host.

    It contains the output of doctor, facts and status, conf files, the variables of NCCL, RCCL and HARP,
    here and of running processes, statistics, dumps of the last events, and versions. Variables, conf
    keys and kernel arguments that harpctl does not know are left out, so that it holds no secret. Without
    root it contains less, and lists what is missing. `harpctl doctor --bundle FILE` reads it on any host.
    """
    bundle = gather_bundle(open_host(root))
    name = re.sub(r"[^\w.-]", "_", platform.node() if root is None else "image") or "host"
    folder = f"harp-report-{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path = output or Path(f"{folder}.tar.gz")
    write_archive(path, folder, {MANIFEST: make_manifest(bundle, name), **bundle.files})
    if as_json:
        print_json({"file": str(path), "files": sorted(bundle.files), "unread": bundle.unread})
        return
    for unread in bundle.unread:
        ERR.print(f"Left out {unread['what']}: {unread['why']}.", style="yellow", markup=False)
    OUT.print(str(path), markup=False)
