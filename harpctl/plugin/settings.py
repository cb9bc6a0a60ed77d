# SPDX-License-Identifier: Apache-2.0
"""The settings that choose a plugin, NCCL_NET, NCCL_NET_PLUGIN and HARP_DISABLE, and where they are set.

NCCL reads the environment, then NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf; what is set first
stays. RCCL reads ~/.rccl.conf and /etc/rccl.conf instead of the two. The environment is ours and counts on
the machine itself alone: a job's may differ.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from harpctl.facts.elf import NAME
from harpctl.host.host import Host

PLUGIN_VARIABLE = "NCCL_NET_PLUGIN"
SWITCH = "HARP_DISABLE"  # HARP's own
NAMES = ("NCCL_NET", PLUGIN_VARIABLE, SWITCH)
ENVIRONMENT = "environment"
SYSTEM_FILE = "/etc/nccl.conf"
RCCL_SYSTEM_FILE = "/etc/rccl.conf"
USER_FILES = ("/root/.nccl.conf", "/home/*/.nccl.conf", "/root/.rccl.conf", "/home/*/.rccl.conf")


class SetVariable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable that is set somewhere."""

    name: str
    value: str
    source: str  # a file, or "environment"

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"{self.name}={self.value} ({self.source})"

    @property
    def obstacle(self) -> str:
        """Return why HARP is not used under this setting, wherever it lies; "" when it is."""
        if self.name == "NCCL_NET" and self.value.lower() != NAME.lower():
            return f"{self} selects that network and no other."
        return f"{self} turns HARP off." if self.name == SWITCH and self.value == "1" else ""


def parse_conf(text: str) -> dict[str, str]:
    """Read an nccl.conf: NAME=VALUE lines; the first of a name counts, as NCCL does not overwrite."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.lstrip().startswith("#"):
            found.setdefault(name.strip(), value.strip())
    return found


def all_settings(host: Host, environment: Mapping[str, str]) -> tuple[SetVariable, ...]:
    """Find every variable that is set: in an environment, users' files and the system's, in this order.

    What the environment sets, if only to nothing, does not count in the files. Nothing as a value means "not
    set", but not to NCCL 2.27 and newer as NCCL_NET_PLUGIN.
    """
    own = environment.get("NCCL_CONF_FILE", "")
    files = [own] if own.startswith("/") else []
    files += [file for pattern in USER_FILES for file in host.glob(pattern)]
    sources = [(ENVIRONMENT, environment)]
    for file in dict.fromkeys([*files, SYSTEM_FILE, RCCL_SYSTEM_FILE]):
        values = parse_conf(host.read_text(file) or "")
        sources.append((file, {name: value for name, value in values.items() if name not in environment}))
    return tuple(
        SetVariable(name=name, value=value, source=source)
        for source, values in sources
        for name, value in values.items()
        if value or name == PLUGIN_VARIABLE
    )


def find_settings(host: Host) -> tuple[SetVariable, ...]:
    """Find what is set for NCCL about plugins."""
    found = all_settings(host, os.environ if host.is_real else {})
    return tuple(setting for setting in found if setting.name in NAMES)
