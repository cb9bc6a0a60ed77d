# SPDX-License-Identifier: Apache-2.0
"""The folder that containers mount: the library, and the environment profile that makes NCCL load it.

The profile is an nccl.conf, NAME=VALUE lines: NCCL reads it as /etc/nccl.conf, and Docker, Slurm's TaskProlog
and enroot's hook read the same lines as an environment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harpctl.change.steps import Group, Plan, WriteFile, drop_held_steps
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.plugin_files import SUFFIXED
from harpctl.host.host import Host
from harpctl.plugin.compat import platform_of, why_incompatible
from harpctl.plugin.settings import PLUGIN_VARIABLE
from harpctl.plugin.switch import Source

FOLDER = "/opt/harp"
SETTING = re.compile(r"((?:HARP|NCCL)_[A-Z0-9_]+)=(\S(?:[^\r\n\0]*\S)?)")
HEAD = """\
# How NCCL finds HARP, and HARP's settings. Written by `harpctl node`; NCCL reads it as /etc/nccl.conf.
"""


def require_absolute(folder: str) -> None:
    """Refuse a folder that is no plain absolute path."""
    if not re.fullmatch(r"(/[\w.+-]+)+", folder) or {".", ".."} & set(folder.split("/")):
        raise HarpError(
            f"--dir {folder}: this is not an absolute path of letters, digits and . _ + -.",
            f"Leave it out for {FOLDER}.",
            ExitCode.USAGE,
        )


def library_path(folder: str) -> str:
    """Return where the library lies in a folder."""
    return f"{folder}/lib/{SUFFIXED}"


def profile_path(folder: str) -> str:
    """Return where the profile lies in a folder."""
    return f"{folder}/nccl.conf"


def read_settings(words: Sequence[str], folder: str) -> dict[str, str]:
    """Read --set options; the library's own path comes first and may be set to something else."""
    found = {PLUGIN_VARIABLE: library_path(folder)}
    for word in words:
        match = SETTING.fullmatch(word)
        if match is None:
            raise HarpError(
                f"--set {word}: this is not NAME=VALUE with a variable of HARP or NCCL.",
                "For example: --set HARP_IFNAME=eth1,eth2",
                ExitCode.USAGE,
            )
        found[match[1]] = match[2]
    return found


def plan_node(host: Host, source: Source, folder: str, settings: dict[str, str]) -> Plan:
    """Plan the library and the profile. Raises HarpError for a library that does not fit the host."""
    unfit = why_incompatible(source.elf, platform_of(host))
    if unfit:
        raise HarpError(
            f"{source.path} {unfit}.",
            "Build the image for this kind of node, and run that one here.",
            ExitCode.REFUSED,
        )
    text = HEAD + "".join(f"{name}={value}\n" for name, value in settings.items())
    steps = (
        WriteFile(why="the plugin that NCCL loads", path=library_path(folder), data=source.data, mode=0o755),
        WriteFile(why="the environment profile", path=profile_path(folder), data=text.encode(), mode=0o644),
    )
    return drop_held_steps(Plan(groups=(Group(name="node", steps=steps),)), host)
