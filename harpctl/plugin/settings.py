"""What the host's settings tell NCCL about plugins: NCCL_NET and NCCL_NET_PLUGIN, and where they are set.

NCCL reads the environment, then NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf; what is set first
stays. The environment is ours and counts on the machine itself alone: a job's may differ.
"""

from __future__ import annotations

import os

import msgspec

from harpctl.host.door import Host
from harpctl.plugin.elf import NAME

NAMES = ("NCCL_NET", "NCCL_NET_PLUGIN")
ENVIRONMENT = "environment"
SYSTEM_FILE = "/etc/nccl.conf"
USER_FILES = ("/root/.nccl.conf", "/home/*/.nccl.conf")
OWN_FILE = "libnccl-net.so"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One variable that is set somewhere."""

    name: str
    value: str
    source: str  # a file, or "environment"

    @property
    def obstacle(self) -> str:
        """Say why NCCL does not pick HARP by its own name under this setting; "" when it does."""
        if self.name == "NCCL_NET" and self.value.lower() != NAME.lower():
            return f"NCCL_NET={self.value} ({self.source}) makes NCCL use that network and no other."
        if self.name == "NCCL_NET_PLUGIN" and not self._names_us():
            return f"NCCL_NET_PLUGIN={self.value} ({self.source}) makes NCCL load that plugin and no other."
        return ""

    def _names_us(self) -> bool:
        files = [value.strip() for value in self.value.split(",")]
        return any(file.rpartition("/")[2] == OWN_FILE for file in files)


def parse_conf(text: str) -> dict[str, str]:
    """Read an nccl.conf: NAME=VALUE lines; the first of a name counts, as NCCL does not overwrite."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.lstrip().startswith("#"):
            found.setdefault(name.strip(), value.strip())
    return found


def find_settings(host: Host) -> tuple[Setting, ...]:
    """Find what is set for NCCL about plugins, the environment first, then files."""
    sources = []
    files = [file for pattern in USER_FILES for file in host.glob(pattern)]
    if host.is_real:
        sources.append((ENVIRONMENT, dict(os.environ)))
        own = os.environ.get("NCCL_CONF_FILE")
        files = ([own] if own and own.startswith("/") else []) + files
    files.append(SYSTEM_FILE)
    sources += [(file, parse_conf(host.read_text(file) or "")) for file in dict.fromkeys(files)]
    return tuple(
        Setting(name=name, value=values[name], source=source)
        for source, values in sources
        for name in NAMES
        if values.get(name)
    )
