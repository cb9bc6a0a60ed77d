# SPDX-License-Identifier: Apache-2.0
"""Hugepages: how many, whether they fit, and as many as can be had without a reboot."""

from __future__ import annotations

from harpctl.change.steps import Group, SetControl
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Facts, Node, PageSetting
from harpctl.kargs.cmdline import (
    HugepageArgs,
    add_sizes,
    find_surplus,
    other_arguments,
    reserved_pages,
    size_argument,
    split_words,
)
from harpctl.setup.options import AUTO, SetupOptions
from harpctl.units import GIB, size_name

GIB_PER_GPU = 5
GIB_RESERVE = 10
SHARE_MAX = 0.8  # the share of a node's memory, or of all
LEFT_MIN = 4 * GIB
LEFT_SHARE_MIN = 0.1


def pages_for(gpus: int, page_size: int) -> int:
    """Return the number of pages that hold 5 GiB for each GPU and 10 GiB more: 50 of 1 GiB for 8 GPUs."""
    return (gpus * GIB_PER_GPU + GIB_RESERVE) * (GIB // page_size)


def page_count(gpus: int, options: SetupOptions) -> int:
    """Return the number of pages: as chosen, else by the number of GPUs."""
    chosen = options.hugepages
    return pages_for(gpus, options.page_size) if chosen is None or chosen == AUTO else chosen


def spread_pages(count: int, nodes: int) -> list[int]:
    """Return how many pages each node gets at boot: the same, and one more for the first ones."""
    return [count // nodes + (index < count % nodes) for index in range(nodes)]


def _fitting_pages(memory: int, page_size: int) -> int:
    left = max(LEFT_MIN, int(memory * LEFT_SHARE_MIN))
    return max(0, min(int(memory * SHARE_MAX), memory - left) // page_size)


def _others_bytes(facts: Facts, options: SetupOptions) -> int:
    """Return the memory of hugepages of other sizes: those there are, or that the boot entries bring."""
    now = {pages.size: pages.total for pages in facts.memory.hugepages}
    counts = [now]
    for entry in facts.boot.entries:
        kept = " ".join(
            other_arguments([word.text for word in split_words(entry.args)], wanted_args(facts, options, 0))
        )
        counts.append(reserved_pages(kept, facts.memory.kernel_default))
    return max(sum(size * count for size, count in found.items() if size != options.page_size) for found in counts)


def check_memory(facts: Facts, options: SetupOptions, count: int) -> None:
    """Raise where all hugepages leave too little: over 80 % of a node, or under 4 GiB or 10 % of it all.

    Where the memory is unknown (a tree without proc, no --memory) nothing is checked.
    """
    total = options.overrides.memory or facts.memory.total
    if not total:
        return
    nodes = [] if options.overrides.memory else list(facts.memory.nodes)
    taken = _others_bytes(facts, options)
    fits = max(0, _fitting_pages(total, options.page_size) - -(-taken // options.page_size))
    if len(nodes) > 1:
        rooms = (int(node.memory * SHARE_MAX) - taken // len(nodes) for node in nodes)
        fits = min(fits, max(0, min(rooms) // options.page_size) * len(nodes))
    if count > fits:
        size = size_name(options.page_size)
        beside = f" beside {taken / GIB:.0f} GiB of other hugepages" if taken else ""
        advice = f"harpctl setup --hugepages {fits}" if fits else "use a host with more memory"
        raise HarpError(
            f"{count} hugepages of {size} don't fit into {total / GIB:.0f} GiB of memory{beside}"
            f"{f' on {len(nodes)} nodes' if len(nodes) > 1 else ''}: {fits} leave enough for everything else"
            " (at most 80 % of each node, at least 4 GiB and 10 % left).",
            f"Ask for fewer: {advice}" if fits else f"Not enough memory: {advice}.",
            ExitCode.MISSING,
        )


def wanted_args(facts: Facts, options: SetupOptions, count: int) -> HugepageArgs:
    """Return the kernel arguments of a number of pages."""
    default = facts.memory.kernel_default
    return HugepageArgs(page_size=options.page_size, count=count, kernel_default=default)


def check_page_size(facts: Facts, options: SetupOptions) -> None:
    """Raise where the processor or its kernel is known not to have 1 GiB pages."""
    if options.page_size == GIB and facts.memory.has_1g is False:
        raise HarpError(
            "This host has no 1 GiB pages: neither its processor (pdpe1gb in /proc/cpuinfo) nor its kernel"
            " (/sys/kernel/mm/hugepages) offers them.",
            "Use 2 MiB pages: harpctl setup --page-size 2M",
            ExitCode.MISSING,
        )


def conflicting_setting(facts: Facts, count: int) -> PageSetting | None:
    """Return the line of sysctl's files that sets another number of pages of the default size at boot."""
    return next((one for one in facts.memory.settings if one.value != str(count)), None)


def check_settings(facts: Facts, wanted: HugepageArgs) -> None:
    """Raise where sysctl would change the number of pages that the kernel arguments reserve.

    It counts pages of the default size, which these arguments set, and it runs after them.
    """
    if setting := conflicting_setting(facts, wanted.count):
        meant = size_argument(wanted.kernel_default)
        keep = f"hugepagesz={meant} hugepages={setting.value}"
        raise HarpError(
            f"{setting.path}:{setting.line}: {setting.name} = {setting.value} would become the number of"
            f" {size_name(wanted.page_size)} pages at every boot, instead of {wanted.count}.",
            f"Take that line out, then run setup again. Where its pages of {meant} are needed, put `{keep}`"
            " into GRUB_CMDLINE_LINUX of /etc/default/grub: setup keeps them.",
            ExitCode.REFUSED,
        )


def replaced_args(facts: Facts, wanted: HugepageArgs) -> list[str]:
    """Return a note for each hugepage argument of somebody else that setup replaces or completes."""
    notes = list[str]()
    own = {*facts.boot.harp_args.split(), *wanted.words()}
    for entry in facts.boot.entries:
        words = [word.text for word in split_words(entry.args)]
        for word, goes, new in zip(words, find_surplus(words, wanted), add_sizes(words, wanted), strict=True):
            if goes and word not in own:
                notes.append(f"The kernel argument {word} is replaced; setup asks for `{wanted}`.")
            elif new != word and not goes:
                notes.append(f"The kernel argument {word} becomes `{new}`: the default size changes.")
    return list(dict.fromkeys(notes))


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
    for node, share in zip(nodes, spread_pages(count, len(nodes)), strict=True):
        if _node_pages(node, options.page_size) < share:
            path = f"/sys/devices/system/node/node{node.id}/{folder}"
            pages = f"{share} pages of {size_name(options.page_size)}"
            why = f"{pages} on node {node.id}, as many as can be had now"
            steps.append(SetControl(path=path, value=str(share), may_fall_short=True, why=why))
    return Group(name="hugepages at run time", steps=tuple(steps))
