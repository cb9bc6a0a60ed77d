# SPDX-License-Identifier: Apache-2.0
"""The units of every boot: harp.service sets the ENIs up and keeps them so, harp-validate.service checks."""

from __future__ import annotations

import posixpath
from importlib import resources

from harpctl.change.steps import AnyStep, Group, MakeLink, Run, WriteFile
from harpctl.confs.conf import CONF_DIR, CONF_PATTERN, TOOLS_DIR
from harpctl.facts.model import Facts
from harpctl.facts.sources import RECORD, Sources
from harpctl.setup.options import PROGRAM, SetupOptions

GROUP = "boot units"
UNITS = "/etc/systemd/system"
NAME = "harp.service"
PATH = f"{UNITS}/{NAME}"
WANTED = f"{UNITS}/multi-user.target.wants/{NAME}"

TOOLS = f"{TOOLS_DIR}/harpctl"
NAMES = (NAME, "harp-validate.service")


def _quote_program(program: str) -> str:
    """Write a path as ExecStart takes it: % doubled, quoted where it holds spaces."""
    text = program.replace("%", "%%").replace("\\", "\\\\")
    return f'"{text}"' if " " in text else text


def plan_tool(options: SetupOptions) -> Group:
    """Plan the name `harpctl`, where it came out of the self-contained file; else it is there by other means.

    The file unpacks it into TOOLS/<version>-<digest>, where nothing is ever changed in place.
    """
    if not options.tool_folder:
        return Group(name="harpctl command", steps=())
    target = f"{TOOLS}/{posixpath.basename(options.tool_folder.rstrip('/'))}/bin/harpctl"
    step = MakeLink(path=PROGRAM, target=target, why="the command for operators and the boot unit")
    return Group(name="harpctl command", steps=(step,))


def reason_against(facts: Facts, sources: Sources, options: SetupOptions) -> str:
    """Return why there are no boot units; "" when there are."""
    if not options.unit:
        return "--no-unit was given"
    if facts.system.init != "systemd":
        return "systemd is not the init of this host"
    links = {step.path for step in plan_tool(options).steps if isinstance(step, MakeLink)}
    if options.program in links or sources.exists(options.program):
        return ""
    return f"{options.program}, which it runs, is not there"


def plan_units(sources: Sources, options: SetupOptions) -> Group:
    """Plan the units; on a running host harp.service starts at once, and ends first when it is undone."""
    steps: list[AnyStep] = []
    for name in NAMES:
        path, text = f"{UNITS}/{name}", (resources.files("harpctl.setup") / f"{name}.in").read_text("utf-8")
        conf_files = f"{CONF_DIR}/{CONF_PATTERN}"
        data = text.format(record=RECORD, conf_files=conf_files, program=_quote_program(options.program)).encode()
        wanted = f"{UNITS}/multi-user.target.wants/{name}"
        steps.append(WriteFile(path=path, data=data, mode=0o644, why=f"{name} at every boot"))
        steps.append(MakeLink(path=wanted, target=path, why=f"starts {name} at boot"))
    if sources.runs_commands:
        reload = ("systemctl", "daemon-reload")
        steps = [Run(undo=reload), *steps, Run(argv=reload)]
        if sources.exists("/run/systemd/system"):
            # It waits for the lock that this setup has.
            start, stop = ("systemctl", "--no-block", "restart", NAME), ("systemctl", "stop", NAME)
            steps.append(Run(argv=start, undo=stop, fleeting=True, why="keeps the ENIs as they are now"))
    return Group(name=GROUP, steps=tuple(steps))
