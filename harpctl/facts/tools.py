# SPDX-License-Identifier: Apache-2.0
"""The programs of the host that harpctl may call, and what each is for."""

from __future__ import annotations

from harpctl.host.host import Host

PURPOSES = {
    "update-grub": "writes the boot menu on Debian and Ubuntu",
    "update-grub2": "the same by its other name",
    "grub-mkconfig": "writes the boot menu",
    "grub2-mkconfig": "writes the boot menu on CentOS, TencentOS and their derivatives",
    "grubby": "changes the kernel arguments of boot entries",
    "rpm-ostree": "changes the kernel arguments of an image-based system",
    "netplan": "configures the network on Ubuntu",
    "nmcli": "configures the network under NetworkManager",
    "ifup": "configures the network of ifcfg files and of /etc/network/interfaces",
    "ip": "shows and sets addresses, routes and rules",
    "ethtool": "sets the queues of an interface",
    "sysctl": "sets parameters of the kernel",
    "ping": "shows whether the host can still be reached after a network change",
    "systemd-run": "starts the rollback timer of a network change",
    "mount": "mounts hugetlbfs",
    "umount": "takes that back",
    "systemctl": "starts units at boot",
    "ldconfig": "renews the cache of the libraries that programs find",
    "ssh": "reaches other hosts with -H",
}


def collect_tools(host: Host) -> dict[str, str]:
    """Look each program up; "" where it is missing."""
    return {name: host.which(name) or "" for name in PURPOSES}
