# SPDX-License-Identifier: Apache-2.0
"""Which of the distribution's means configures the network of a host at boot."""

from __future__ import annotations

import enum
import re

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host

NETPLAN_FILES = ("/etc/netplan/*.yaml", "/run/netplan/*.yaml", "/usr/lib/netplan/*.yaml")
IFCFG_DIR = "/etc/sysconfig/network-scripts"
INTERFACES = "/etc/network/interfaces"
WANTS = "/etc/systemd/system/multi-user.target.wants"
RENDERED_BY_NM = re.compile(r"^\s*renderer:\s*[\"']?NetworkManager\b", re.MULTILINE)
WILDCARD_NAME = re.compile(r"^\s*name:\s*[\"']?[^\"'\s#]*[*?\[]", re.MULTILINE)
OTHER_STANZA = re.compile(r"^\s*iface\s+(?!lo\s)\S+", re.MULTILINE)


class Manager(enum.Enum):
    """Who brings interfaces up at boot."""

    NETPLAN = "netplan with systemd-networkd"
    NETPLAN_NM = "netplan with NetworkManager"
    NETWORKD = "systemd-networkd"
    NETWORKMANAGER = "NetworkManager"
    IFCFG = "network-scripts"
    IFUPDOWN = "ifupdown"


def _netplan(host: Host) -> Manager | None:
    """Return how netplan is used.

    A definition that names its interfaces by a pattern (all-en, in Debian's cloud image) comes before one of
    ours, and netplan can't take an interface out of it. A file of systemd-networkd itself comes before both.
    """
    files = [path for pattern in NETPLAN_FILES for path in host.glob(pattern)]
    if host.which("netplan") is None or not files:
        return None
    texts = [host.read_text(path) or "" for path in files]
    if any(RENDERED_BY_NM.search(text) for text in texts):
        return Manager.NETPLAN_NM
    return Manager.NETWORKD if any(WILDCARD_NAME.search(text) for text in texts) else Manager.NETPLAN


def _uses_network_scripts(host: Host) -> bool:
    """Return whether the service `network` reads the ifcfg files: CentOS 7, TencentOS 2, some release 8."""
    scripts = any(host.exists(f"{folder}/network") for folder in ("/etc/rc.d/init.d", "/etc/init.d"))
    starts = host.glob("/etc/rc.d/rc3.d/S*network") + host.glob("/etc/rc3.d/S*network")
    return host.is_dir(IFCFG_DIR) and scripts and (bool(starts) or host.which("NetworkManager") is None)


def _uses_ifupdown(host: Host) -> bool:
    files = [INTERFACES, *host.glob(f"{INTERFACES}.d/*")]
    named = any(OTHER_STANZA.search(host.read_text(path) or "") for path in files)
    return host.which("ifup") is not None and host.is_file(INTERFACES) and named


def _uses_networkd(host: Host) -> bool:
    enabled = host.stat(f"{WANTS}/systemd-networkd.service") is not None
    return enabled or bool(host.glob("/etc/systemd/network/*.network"))


def detect(host: Host) -> Manager:
    """Return the manager of a host. Raises HarpError where none is known."""
    if found := _netplan(host):
        return found
    if _uses_network_scripts(host):
        return Manager.IFCFG
    if _uses_ifupdown(host):
        return Manager.IFUPDOWN
    if _uses_networkd(host):
        return Manager.NETWORKD
    if host.which("NetworkManager") is not None:
        return Manager.NETWORKMANAGER
    raise HarpError(
        "Nothing that configures the network at boot was found: no netplan, NetworkManager, network-scripts,"
        " ifupdown or systemd-networkd.",
        "Configure the ENIs by hand, as docs/operations.md describes, and leave them out: --no-network",
        ExitCode.MISSING,
    )
