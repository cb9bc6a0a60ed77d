# SPDX-License-Identifier: Apache-2.0
"""Hugepages: how many, whether they fit, and as many as can be had without a reboot."""

from __future__ import annotations

from harpctl.change.steps import Group, SetControl
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import GIB, Facts, Node
from harpctl.setup.options import SetupOptions

GIB_PER_GPU = 5
GIB_RESERVE = 10
SHARE_MAX = 0.8  # of a node's memory, or of all
LEFT_MIN = 4 * GIB
LEFT_SHARE_MIN = 0.1


def size_name(page_size: int) -> str:
    """Return the page size in words: 1 GiB or 2 MiB."""
    return "1 GiB" if page_size == GIB else "2 MiB"


def pages_for(gpus: int, page_size: int) -> int:
    """Return the number of pages that hold 5 GiB for each GPU and 10 GiB more: 50 of 1 GiB for 8 GPUs."""
    return (gpus * GIB_PER_GPU + GIB_RESERVE) * (GIB // page_size)


def page_count(gpus: int, options: SetupOptions) -> int:
    """Return the number of pages: as given, else by the number of GPUs."""
    return pages_for(gpus, options.page_size) if options.hugepages is None else options.hugepages


def spread(count: int, nodes: int) -> list[int]:
    """Return how many pages each node gets at boot: the same, and one more for the first ones."""
    return [count // nodes + (index < count % nodes) for index in range(nodes)]


def _fitting(memory: int, page_size: int) -> int:
    left = max(LEFT_MIN, int(memory * LEFT_SHARE_MIN))
    return max(0, min(int(memory * SHARE_MAX), memory - left) // page_size)


def check_memory(facts: Facts, options: SetupOptions, count: int) -> None:
    """Raise where the pages would leave too little: over 80 % of a node, or under 4 GiB or 10 % of it all.

    Where the memory is unknown (a tree without proc, no --memory) nothing is checked.
    """
    total = options.overrides.memory or facts.memory.total
    if not total:
        return
    nodes = [] if options.overrides.memory else list(facts.memory.nodes)
    fits = _fitting(total, options.page_size)
    if len(nodes) > 1:
        by_node = min(int(node.memory * SHARE_MAX) // options.page_size for node in nodes)
        fits = min(fits, by_node * len(nodes))
    if count > fits:
        size = size_name(options.page_size)
        advice = f"harpctl setup --hugepages {fits}" if fits else "use a host with more memory"
        raise HarpError(
            f"{count} hugepages of {size} don't fit into {total / GIB:.0f} GiB of memory"
            f"{f' on {len(nodes)} nodes' if len(nodes) > 1 else ''}: {fits} leave enough for everything else"
            " (at most 80 % of each node, at least 4 GiB and 10 % left).",
            f"Ask for fewer: {advice}" if fits else f"Not enough memory: {advice}.",
            ExitCode.MISSING,
        )


def check_page_size(facts: Facts, options: SetupOptions) -> None:
    """Raise where the processor is known not to have 1 GiB pages."""
    if options.page_size == GIB and facts.memory.has_1g is False:
        raise HarpError(
            "This processor has no 1 GiB pages (no pdpe1gb in /proc/cpuinfo).",
            "Use 2 MiB pages: harpctl setup --page-size 2M",
            ExitCode.MISSING,
        )


def pages_now(facts: Facts, page_size: int) -> int:
    """Return how many pages of a size the running kernel holds."""
    return next((pages.total for pages in facts.memory.hugepages if pages.size == page_size), 0)


def _node_pages(node: Node, page_size: int) -> int:
    return next((pages.total for pages in node.hugepages if pages.size == page_size), 0)


def plan_now(facts: Facts, options: SetupOptions, count: int) -> Group:
    """Ask the running kernel for the pages, spread over the nodes as at boot; it may give fewer.

    Nothing is requested where there are as many already: pages on a node more than its share stay there.
    """
    if pages_now(facts, options.page_size) >= count:
        return Group(name="hugepages at run time", steps=())
    steps = []
    nodes = [node for node in facts.memory.nodes if node.memory] or [Node(id=0, memory=0, free=0, cpus=())]
    folder = f"hugepages/hugepages-{options.page_size // 1024}kB/nr_hugepages"
    for node, share in zip(nodes, spread(count, len(nodes)), strict=True):
        if _node_pages(node, options.page_size) < share:
            path = f"/sys/devices/system/node/node{node.id}/{folder}"
            pages = f"{share} pages of {size_name(options.page_size)}"
            why = f"{pages} on node {node.id}, as many as can be had now"
            steps.append(SetControl(path=path, value=str(share), may_fall_short=True, why=why))
    return Group(name="hugepages at run time", steps=tuple(steps))
