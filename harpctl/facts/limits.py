# SPDX-License-Identifier: Apache-2.0
"""Limits of this process: locked memory, open files, hugepages of its cgroup, capabilities."""

from __future__ import annotations

import re

from harpctl.facts import text
from harpctl.facts.model import CgroupPages, Limits, Mount
from harpctl.host.host import Host
from harpctl.units import size_of

NO_LIMIT = 1 << 62  # cgroup v1 writes the largest whole number of pages instead of "max"
CGROUP_V1 = {"limit": "limit_in_bytes", "usage": "usage_in_bytes"}
CGROUP_V2 = {"limit": "max", "usage": "current"}
DEPTH_MAX = 64  # the depth of nested cgroups
CAPABILITY_NAMES = (  # in the order of their bits, linux/capability.h
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable "
    "net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot "
    "sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease "
    "audit_write audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read "
    "perfmon bpf checkpoint_restore"
)


def collect_limits(host: Host, mounts: tuple[Mount, ...], unknown: list[str]) -> Limits:
    """Gather the limits of the process that /proc/self shows."""
    limits = text.read_clean(host, "/proc/self/limits")
    capabilities = _read_capabilities(host)
    if not limits or capabilities is None:
        unknown.append("Limits and capabilities are unknown: /proc/self does not show them.")
    return Limits(
        memlock=_soft_limit(limits, "Max locked memory"),
        nofile=_soft_limit(limits, "Max open files"),
        hugetlb=_read_hugetlb(host, mounts),
        capabilities=capabilities,
    )


def _soft_limit(limits: str, name: str) -> int | None:
    """Return a soft limit; -1 for none, None where it is unknown."""
    match = re.search(rf"^{name}\s+([0-9]{{1,18}}|unlimited)\s", limits, re.MULTILINE | re.ASCII)
    if match is None:
        return None
    return -1 if match[1] == "unlimited" else int(match[1])


def _read_capabilities(host: Host) -> tuple[str, ...] | None:
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", text.read_clean(host, "/proc/self/status"), re.MULTILINE)
    if match is None:
        return None
    bits = int(match[1], 16)
    return tuple(f"cap_{name}" for bit, name in enumerate(CAPABILITY_NAMES.split()) if bits >> bit & 1)


def _own_groups(host: Host) -> dict[str, str]:
    """Read /proc/self/cgroup: controllers -> path; "" is the unified hierarchy."""
    groups = {}
    for line in text.read_lines(host, "/proc/self/cgroup"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            groups.update(dict.fromkeys(fields[1].split(","), fields[2]))
    return groups


def _read_hugetlb(host: Host, mounts: tuple[Mount, ...]) -> tuple[CgroupPages, ...]:
    """Read the limits of our own cgroup, the tightest one of it and those above it."""
    groups = _own_groups(host)
    found: dict[int, CgroupPages] = {}
    for mount in mounts:
        is_v1 = mount.kind == "cgroup" and "hugetlb" in mount.options.split(",")
        if not is_v1 and mount.kind != "cgroup2":
            continue
        group = groups.get("hugetlb" if is_v1 else "", "/").strip("/")
        parts = [part for part in group.split("/") if part]
        for depth in range(min(len(parts), DEPTH_MAX) + 1):
            folder = "/".join([mount.path, *parts[:depth]])
            for pages in _pages_of(host, folder, CGROUP_V1 if is_v1 else CGROUP_V2):
                known = found.get(pages.size)
                if known is None or 0 <= pages.limit < (known.limit if known.limit >= 0 else NO_LIMIT):
                    found[pages.size] = pages
    return tuple(found[size] for size in sorted(found))


def _pages_of(host: Host, folder: str, names: dict[str, str]) -> list[CgroupPages]:
    """Read the hugetlb files of one cgroup; a mount of only a part of the hierarchy has fewer folders."""
    found = []
    for name in host.list_dir(folder):
        match = re.fullmatch(rf"hugetlb\.([0-9]{{1,6}})([KMG]B)\.{names['limit']}", name, re.ASCII)
        if match:
            stem = name.removesuffix(names["limit"])
            limit = text.parse_number(text.read_word(host, f"{folder}/{name}"))
            found.append(
                CgroupPages(
                    size=size_of(match[1], match[2]),
                    limit=limit if 0 <= limit < NO_LIMIT else -1,
                    usage=text.read_count(host, f"{folder}/{stem}{names['usage']}"),
                )
            )
    return found
