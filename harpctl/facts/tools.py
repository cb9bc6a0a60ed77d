# SPDX-License-Identifier: Apache-2.0
"""The programs of the host that harpctl may call."""

from __future__ import annotations

from harpctl.host.host import Host

NAMES = (
    *("update-grub", "update-grub2", "grub-mkconfig", "grub2-mkconfig", "grubby", "rpm-ostree"),
    *("netplan", "nmcli", "ifup", "ip", "ethtool", "sysctl", "ping", "systemd-run", "mount", "umount"),
    *("systemctl", "ldconfig", "ssh"),
)


def collect_tools(host: Host) -> dict[str, str]:
    """Look each program up; "" where it is missing."""
    return {name: host.which(name) or "" for name in NAMES}
