# SPDX-License-Identifier: Apache-2.0
"""The name `harpctl` on the host: a link to the tool that the self-contained file put there.

The file itself unpacks the tool into TOOLS/<version>-<digest>, where nothing is ever changed in place; the
link is a step of setup like any other, so that rollback undoes it to what it was.
"""

from __future__ import annotations

import posixpath

from harpctl.change.steps import Group, MakeLink
from harpctl.confs.conf import TOOLS_DIR
from harpctl.setup.options import PROGRAM, SetupOptions

TOOLS = f"{TOOLS_DIR}/harpctl"


def plan_tool(options: SetupOptions) -> Group:
    """Plan the link, where harpctl came out of the self-contained file; else it is there by other means."""
    if not options.tool_folder:
        return Group(name="harpctl command", steps=())
    target = f"{TOOLS}/{posixpath.basename(options.tool_folder.rstrip('/'))}/bin/harpctl"
    step = MakeLink(path=PROGRAM, target=target, why="the command for operators and the boot unit")
    return Group(name="harpctl command", steps=(step,))
