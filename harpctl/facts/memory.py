# SPDX-License-Identifier: Apache-2.0
"""Memory, hugepages of the host and of its NUMA nodes, and where hugetlbfs is mounted."""

from __future__ import annotations

import re

from harpctl.facts import text
from harpctl.facts.model import HugeMount, Memory, Mount, Node, Pages, PageSetting
from harpctl.host.host import Host
from harpctl.units import GIB, KIB, MIB, size_of

NODES = "/sys/devices/system/node"
PAGES = "/sys/kernel/mm/hugepages"
PMD_SIZE = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
SYSCTL_DIRS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
SYSCTL_FILE = "/etc/sysctl.conf"
PAGE_COUNTS = re.compile(r"-?\s*(vm[./]nr_hugepages(?:_mempolicy)?)\s*=\s*(\S*)\s*")


def collect_mounts(host: Host) -> tuple[Mount, ...]:
    """Read /proc/mounts."""
    mounts = []
    for line in text.read_lines(host, "/proc/mounts"):
        fields = [_unescape_blanks(field) for field in line.split()]
        if len(fields) >= 4:
            mounts.append(Mount(source=fields[0], path=fields[1], kind=fields[2], options=fields[3]))
    return tuple(mounts)


def _unescape_blanks(field: str) -> str:
    """Undo the octal escapes of blanks in mount tables."""
    return re.sub(r"\\(0[0-7]{2}|1[0-7]{2})", lambda match: chr(int(match[1], 8)), field)


def read_meminfo(host: Host, path: str) -> dict[str, int]:
    """Read a meminfo of the host or of a node: sizes in bytes, counts as they are."""
    values = {}
    for line in text.read_lines(host, path):
        match = re.fullmatch(r"(?:Node \d+ )?([A-Za-z_()0-9]+):\s+([0-9]{1,15})( kB)?\s*", line, re.ASCII)
        if match:
            values[match[1]] = int(match[2]) * (KIB if match[3] else 1)
    return values


def collect_pages(host: Host, folder: str) -> tuple[Pages, ...]:
    """Read a folder of hugepages-<size>kB, smallest pages first."""
    found = []
    for name in host.list_dir(folder):
        if match := re.fullmatch(r"hugepages-([0-9]{1,12})kB", name, re.ASCII):
            total = text.read_count(host, f"{folder}/{name}/nr_hugepages")
            free = text.read_count(host, f"{folder}/{name}/free_hugepages")
            found.append(Pages(size=int(match[1]) * KIB, total=total, free=free))
    return tuple(sorted(found, key=lambda pages: pages.size))


def _collect_nodes(host: Host) -> tuple[Node, ...]:
    nodes = []
    for name in host.list_dir(NODES):
        if match := re.fullmatch(r"node([0-9]{1,4})", name, re.ASCII):
            folder = f"{NODES}/{name}"
            memory = read_meminfo(host, f"{folder}/meminfo")
            nodes.append(
                Node(
                    id=int(match[1]),
                    memory=memory.get("MemTotal", 0),
                    free=memory.get("MemFree", 0),
                    cpus=text.number_list(text.read_clean(host, f"{folder}/cpulist")),
                    hugepages=collect_pages(host, f"{folder}/hugepages"),
                )
            )
    return tuple(sorted(nodes, key=lambda node: node.id))


def page_size_of(options: str) -> int:
    """Return the page size in bytes that options of a hugetlbfs name; 0: the kernel's default."""
    match = re.search(r"(?:^|,)pagesize=([0-9]{1,12})([KMG]?)", options, re.ASCII | re.IGNORECASE)
    return size_of(match[1], match[2]) if match else 0


def _huge_mount(mount: Mount, default_page: int) -> HugeMount:
    size, is_writable = page_size_of(mount.options) or default_page, "ro" not in mount.options.split(",")
    return HugeMount(path=mount.path, page_size=size, options=mount.options, is_writable=is_writable)


def page_settings(host: Host) -> tuple[PageSetting, ...]:
    """Return the lines of sysctl's files that set a count; a file hides its namesakes in later folders."""
    files: dict[str, str] = {}
    for folder in SYSCTL_DIRS:
        for path in host.glob(f"{folder}/*.conf"):
            files.setdefault(path.rpartition("/")[2], path)
    paths = [files[name] for name in sorted(files)]
    real = {host.leads_to(path) or path: path for path in [*paths, SYSCTL_FILE]}
    return tuple(
        PageSetting(path=path, line=number, name=match[1], value=match[2])
        for path in real.values()
        for number, line in enumerate(text.read_lines(host, path), 1)
        if (match := PAGE_COUNTS.fullmatch(line.strip()))
    )


def collect_memory(host: Host, mounts: tuple[Mount, ...], override: int | None, unknown: list[str]) -> Memory:
    """Gather the facts of memory; `override` bytes take precedence over what the host shows."""
    memory = read_meminfo(host, "/proc/meminfo")
    total = memory.get("MemTotal", 0) if override is None else override
    if not total:
        unknown.append("The amount of memory is unknown: /proc/meminfo does not show it.")
    default_page = memory.get("Hugepagesize", 0)
    pages = collect_pages(host, PAGES)
    flags = re.search(r"^flags\s*:(.*)", text.read_clean(host, "/proc/cpuinfo"), re.MULTILINE)
    has_1g = "pdpe1gb" in flags[1].split() if flags else (False if pages else None)  # x86 offers them unasked
    return Memory(
        total=total,
        available=memory.get("MemAvailable", 0),
        has_1g=True if any(page.size == GIB for page in pages) else has_1g,
        default_page=default_page,
        kernel_default=text.read_count(host, PMD_SIZE) or 2 * MIB,
        settings=page_settings(host),
        hugepages=pages,
        nodes=_collect_nodes(host),
        mounts=tuple(_huge_mount(mount, default_page) for mount in mounts if mount.kind == "hugetlbfs"),
    )
