# SPDX-License-Identifier: Apache-2.0
"""The units of every boot: harp.service sets the ENIs up and keeps them so, harp-validate.service checks."""

from __future__ import annotations

from harpctl.change.steps import AnyStep, Group, MakeLink, Run, WriteFile
from harpctl.confs.conf import CONF_DIR, CONF_PATTERN
from harpctl.facts.model import Facts
from harpctl.facts.sources import RECORD, Sources
from harpctl.setup.options import SetupOptions
from harpctl.setup.tool import plan_tool

GROUP = "boot units"
UNITS = "/etc/systemd/system"
NAME = "harp.service"
PATH = f"{UNITS}/{NAME}"
WANTED = f"{UNITS}/multi-user.target.wants/{NAME}"

TEXTS = {
    NAME: """\
# Written by harpctl setup; harpctl rollback takes it away.
[Unit]
Description=HARP: set its interfaces up and keep them so
DefaultDependencies=no
After=local-fs.target systemd-sysctl.service systemd-udevd.service
After=NetworkManager.service systemd-networkd.service networking.service network.service
Before=network-online.target shutdown.target
Conflicts=shutdown.target
ConditionPathExists={record}

[Service]
Type=notify
NotifyAccess=all
ExecStart={program} boot --keep
Restart=on-failure
RestartSec=5
StandardInput=null
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
""",
    "harp-validate.service": """\
# Written by harpctl setup; harpctl rollback takes it away.
[Unit]
Description=HARP: check the host
Wants=network-online.target
After=harp.service network-online.target dev-hugepages.mount
ConditionPathExistsGlob={conf_files}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program} validate
StandardInput=null
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
""",
}


def _quoted(program: str) -> str:
    """Write a path as ExecStart takes it: % doubled, quoted where it holds spaces."""
    text = program.replace("%", "%%").replace("\\", "\\\\")
    return f'"{text}"' if " " in text else text


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
    for name, text in TEXTS.items():
        path = f"{UNITS}/{name}"
        conf_files = f"{CONF_DIR}/{CONF_PATTERN}"
        data = text.format(record=RECORD, conf_files=conf_files, program=_quoted(options.program)).encode()
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
