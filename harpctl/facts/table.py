# SPDX-License-Identifier: Apache-2.0
"""Facts as a person reads them: short lines for the system, tables for GPUs, ENIs and NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from harpctl.console import make_table
from harpctl.facts.model import Eni, Facts, Pages
from harpctl.units import size_name as size

FOLDED = {"address", "hugepages", "processors", ""}  # columns that give way on a narrow terminal
UNKNOWN = "unknown"
NETWORK_CAPABILITIES = ("cap_net_admin", "cap_net_raw", "cap_bpf", "cap_sys_admin", "cap_ipc_lock")


def facts_tables(facts: Facts) -> Iterator[Table]:
    """Yield what is printed, one after the other."""
    yield _make_grid(_host_rows(facts))
    if facts.memory.nodes:
        yield _nodes_table(facts)
    if facts.gpus:
        yield _gpus_table(facts)
    if facts.enis:
        yield _enis_table(facts)
        yield _devices_table(facts)


def summarize_facts(facts: Facts) -> str:
    """Return what a host is in one line, for a table of hosts."""
    system, gpus = facts.system, len(facts.gpus)
    names = ", ".join(eni.name for eni in facts.enis) or "none"
    words = [system.name or "unknown", f"Linux {system.kernel or 'unknown'}"]
    return "; ".join([*words, f"{gpus} GPU{'s' * (gpus != 1)}", f"ENIs: {names}"])


def _pages_text(pages: Sequence[Pages]) -> str:
    parts = [f"{p.total} x {size(p.size)} ({p.free} free)" for p in pages if p.total]
    return ", ".join(parts) or "none"


def _host_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    system, boot, memory, limits = facts.system, facts.boot, facts.memory, facts.limits
    family = f" ({system.family} family)" if system.family else ""
    yield "system", f"{system.name or 'unknown'}{family}"
    yield "kernel", " ".join(part for part in (system.kernel or "unknown", system.arch) if part)
    yield "glibc", system.glibc or "unknown"
    yield "container", system.container or ("no" if facts.mounts else UNKNOWN)
    yield "boot", ": ".join(part for part in (boot.loader or "unknown", boot.reason) if part)
    yield "command line", boot.cmdline or "unknown"
    yield (
        "memory",
        f"{size(memory.total)}, {size(memory.available)} available" if memory.total else "unknown",
    )
    yield (
        "hugepages",
        (_pages_text(memory.hugepages) if memory.hugepages or facts.mounts else UNKNOWN)
        + ("; the processor has no 1 GiB pages" if memory.has_1g is False else ""),
    )
    mounted = ", ".join(f"{m.path} ({size(m.page_size)})" for m in memory.mounts)
    yield "hugetlbfs", mounted or ("not mounted" if facts.mounts else UNKNOWN)
    yield "processors", _processors_text(facts)
    yield "locked memory", _limit_text(limits.memlock)
    for group in limits.hugetlb:
        if group.limit >= 0:
            yield (f"cgroup, {size(group.size)} pages", f"{size(group.usage)} of {size(group.limit)} in use")
    yield "capabilities", _capabilities_text(limits.capabilities)
    yield "NCCL", ", ".join(f"{lib.path} {lib.version}".rstrip() for lib in facts.libraries) or "not found"
    yield "plugin", ", ".join(f"{p.path} ({p.form})" for p in facts.plugins) or "not installed"
    yield "missing programs", ", ".join(name for name, path in facts.tools.items() if not path) or "none"
    yield "conf files", ", ".join(facts.conf_files) or "none"


def _limit_text(limit: int | None) -> str:
    if limit is None:
        return UNKNOWN
    return "unlimited" if limit < 0 else size(limit)


def _capabilities_text(have: tuple[str, ...] | None) -> str:
    if have is None:
        return UNKNOWN
    return ", ".join(name for name in NETWORK_CAPABILITIES if name in have) or "none"


def _processors_text(facts: Facts) -> str:
    if not facts.cpus:
        return "unknown"
    cores = len({cpu.core for cpu in facts.cpus})
    return f"{len(facts.cpus)} threads of {cores} cores"


def _make_grid(pairs: Iterator[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(value))
    return table


def _nodes_table(facts: Facts) -> Table:
    table = make_table("node", "memory", "free", "hugepages", "processors", folded=FOLDED)
    for node in facts.memory.nodes:
        cpus = f"{len(node.cpus)}" + (f", from {node.cpus[0]} to {node.cpus[-1]}" if node.cpus else "")
        table.add_row(str(node.id), size(node.memory), size(node.free), _pages_text(node.hugepages), cpus)
    return table


def _node_text(node: int) -> str:
    return str(node) if node >= 0 else "-"


def _gpus_table(facts: Facts) -> Table:
    table = make_table("GPU", "PCI", "device", "node", folded=FOLDED)
    for gpu in facts.gpus:
        table.add_row(str(gpu.index), gpu.pci, f"{gpu.vendor}:{gpu.device}", _node_text(gpu.node))
    return table


def _remarks_text(eni: Eni) -> str:
    remarks = [
        (eni.is_default_route, "default route"),
        (eni.carries_ssh, "this ssh session"),
        (bool(eni.kind), eni.kind),
        (eni.xdp_attached, "XDP program attached"),
    ]
    return ", ".join(text for holds, text in remarks if holds)


def _enis_table(facts: Facts) -> Table:
    table = make_table("ENI", "state", "address", "MTU", "queues", "Mbit/s", "node", "", folded=FOLDED)
    for eni in facts.enis:
        state = "down" if not eni.is_up else "up" if eni.has_link else "no link"
        queues = f"{eni.queues or '-'}" + (f"/{eni.queues_max}" if eni.queues_max else "")
        cells = [eni.name, state, " ".join(eni.addresses) or "-", str(eni.mtu or "-"), queues]
        cells += [str(eni.speed_mbps or "-"), _node_text(eni.node), _remarks_text(eni)]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _devices_table(facts: Facts) -> Table:
    table = make_table("ENI", "MAC", "PCI", "driver", "XDP", folded=FOLDED)
    for eni in facts.enis:
        cells = (eni.name, eni.mac, eni.pci, eni.driver, eni.xdp)
        table.add_row(*(Text(cell or "-") for cell in cells))
    return table
