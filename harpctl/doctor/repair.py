# SPDX-License-Identifier: Apache-2.0
"""Repair commands that can be pasted: for this host, for the container's host, or for a directory tree.

Checks write a repair as if it ran on the host that they look at. Here `harpctl setup` gets the options that
keep the earlier setup's choices, and paths get the tree's root. MTU and channels that the record holds are
changed by setup, because harp.service would set them back.
"""

from __future__ import annotations

import re
import shlex

from harpctl.doctor.context import Context
from harpctl.doctor.hugepages import next_boot
from harpctl.units import MIB

SETUP = "harpctl setup"
OF_THE_HOST = (SETUP, "sysctl -w net.core.")  # what a container cannot do
OF_FILES = ("chmod ",)
COMMENT = "  # "
RECORDED = {  # what of an ENI is changed, and the option of setup that records it
    "mtu": (re.compile(r"ip link set dev (\S+) mtu (\d+)"), "--mtu"),
    "queues": (re.compile(r"ethtool -L (\S+) (?:combined|rx) (\d+)(?: tx \d+)?"), "--channels"),
}


def adapt_repair(repair: str, context: Context) -> str:
    """Return a repair adapted to where it is pasted; text that is no command is unchanged."""
    command, mark, comment = repair.partition(COMMENT)
    command = _by_setup(command, context)
    if command.startswith(SETUP):
        command += "".join(f" {option}" for option in _kept_options(command, context))
    if context.facts.system.container and command.startswith(OF_THE_HOST):
        return f"{command}{COMMENT}on the host"
    if not context.is_running:
        command = _for_tree(command, str(context.host.root))
    return command + mark + comment


def _by_setup(command: str, context: Context) -> str:
    """Return the setup that changes what a command changes, where the record holds that."""
    for key, (pattern, option) in RECORDED.items():
        match = pattern.fullmatch(command)
        eni = context.record.find_eni(match[1]) if match else None
        if match and eni is not None and getattr(eni, key) is not None:
            return f"{SETUP} {option} {match[2]}"
    return command


def _for_tree(command: str, root: str) -> str:
    """Make a command one for a tree; what only a running host can do stays."""
    folder = shlex.quote(root)
    if command.startswith("harpctl "):
        return f"{command} --root {folder}"
    if command.startswith("systemctl "):
        return command.replace("systemctl ", f"systemctl --root={folder} ", 1)
    if command.startswith(OF_FILES):
        return shlex.join(f"{root}{word}" if word.startswith("/") else word for word in shlex.split(command))
    return command


def _kept_options(command: str, context: Context) -> list[str]:
    """Return the options with which setup chooses again what it chose for the conf files that are there."""
    options = []
    if "--page-size" not in command and context.page_size == 2 * MIB:
        options.append("--page-size 2M")
    names = tuple(conf.interface for _path, conf in context.confs)
    have_all = len(context.pairs) == len(context.conf_files) == len(set(names)) > 0
    if "--enis" not in command and have_all and names != context.usual_enis:
        options.append(shlex.join(["--enis", ",".join(names)]))
    if "--hugepages" not in command and not context.facts.gpus and (pages := next_boot(context)):
        options.append(f"--hugepages {pages}")
    return options
