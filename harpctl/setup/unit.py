# SPDX-License-Identifier: Apache-2.0
"""The unit that runs at every boot: it sets what a boot resets, and checks the rest."""

from __future__ import annotations

import re

from harpctl.change.steps import AnyStep, Group, MakeLink, Run, WriteFile
from harpctl.confs.conf import CONF_DIR, CONF_PATTERN
from harpctl.facts.model import Facts
from harpctl.host.host import Host
from harpctl.setup.options import SetupOptions
from harpctl.setup.tool import plan_tool

NAME = "harp.service"
PATH = f"/etc/systemd/system/{NAME}"
WANTED = f"/etc/systemd/system/multi-user.target.wants/{NAME}"

TEXT = """\
# Written by harpctl setup; harpctl rollback takes it away.
[Unit]
Description=HARP: set NIC channels and BIG TCP, and check the host
Wants=network-online.target
After=network-online.target dev-hugepages.mount systemd-sysctl.service
ConditionPathExistsGlob={conf_files}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program} boot{options}
StandardInput=null
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
"""


def _quoted(program: str) -> str:
    """Write a path as ExecStart takes it: % doubled, quoted where it holds spaces."""
    text = program.replace("%", "%%").replace("\\", "\\\\")
    return f'"{text}"' if " " in text else text


def has_program(host: Host, options: SetupOptions) -> bool:
    """Return whether the program that the unit runs is there, or will be after this setup."""
    links = {step.path for step in plan_tool().steps if isinstance(step, MakeLink)}
    return options.program in links or host.is_file(options.program)


def _channels(host: Host, options: SetupOptions) -> int | None:
    """Return the channels to set at boot: those requested, else those of an earlier setup."""
    earlier = re.search(r"^ExecStart=.* --channels (\d+)( |$)", host.read_text(PATH) or "", re.MULTILINE)
    return options.channels or (int(earlier[1]) if earlier else None)


def chosen_big_tcp(host: Host, options: SetupOptions) -> bool | None:
    """Return whether BIG TCP is set at boot: as requested, else as an earlier setup chose.

    Without either it is, where setup may change the network; else nothing is chosen: None.
    """
    if options.big_tcp is not None:
        return options.big_tcp
    earlier = re.search(r"^ExecStart=.* --(no-)?big-tcp( |$)", host.read_text(PATH) or "", re.MULTILINE)
    if earlier:
        return not earlier[1]
    return True if options.network else None


def plan_unit(facts: Facts, host: Host, options: SetupOptions) -> Group:
    """Plan the unit, where systemd is the init; there is none elsewhere."""
    if facts.system.init != "systemd":
        return Group(name="boot unit", steps=())
    channels = _channels(host, options)
    arguments = f" --channels {channels}" if channels else ""
    arguments += {True: " --big-tcp", False: " --no-big-tcp", None: ""}[chosen_big_tcp(host, options)]
    text = TEXT.format(
        conf_files=f"{CONF_DIR}/{CONF_PATTERN}", program=_quoted(options.program), options=arguments
    )
    steps: list[AnyStep] = [
        WriteFile(
            path=PATH, data=text.encode(), mode=0o644, why="channels, BIG TCP and a check at every boot"
        ),
        MakeLink(path=WANTED, target=PATH, why=f"starts {NAME} at boot"),
    ]
    if host.runs_commands:
        reload = ("systemctl", "daemon-reload")
        steps = [Run(undo=reload), *steps, Run(argv=reload)]
    return Group(name="boot unit", steps=tuple(steps))
