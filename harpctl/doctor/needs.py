# SPDX-License-Identifier: Apache-2.0
"""The needs of checks: each function returns why there is nothing to look at, or "".

So a check that had nothing to look at is shown as skipped, never as passed.
"""

from __future__ import annotations

from harpctl.doctor.context import IFNAME, Context


def machine(context: Context) -> str:
    """Need the running machine."""
    return "" if context.is_running else "A directory tree does not run."


def conf(context: Context) -> str:
    """Need a conf file that can be read, or HARP_IFNAME."""
    if context.confs:
        return ""
    if IFNAME in context.environment:
        return f"{IFNAME} selects no interface that has an address."
    if context.asked_by:
        return "No interface fits, as `harpctl topo` shows."
    return "There is no conf file that can be read."


def pair(context: Context) -> str:
    """Need a conf file whose interface is there, or HARP_IFNAME."""
    return conf(context) or ("" if context.pairs else "No interface of a conf file is there.")


def two_enis(context: Context) -> str:
    """Need two ENIs."""
    return pair(context) or ("" if len(context.pairs) > 1 else "There is one ENI only.")


def wanted_pages(context: Context) -> str:
    """Need conf files that request hugepages; without any the default requests them."""
    return "" if context.page_size else "The conf files ask for no hugepages."


def pages(context: Context) -> str:
    """Need hugepages of the wanted size."""
    return wanted_pages(context) or ("" if context.pages.total else "There are no hugepages of that size.")


def mount(context: Context) -> str:
    """Need the hugetlbfs."""
    return wanted_pages(context) or ("" if context.mount else "No hugetlbfs is mounted there.")


def gpu(context: Context) -> str:
    """Need a GPU."""
    return "" if context.facts.gpus else "There is no GPU."


def plugin(context: Context) -> str:
    """Need HARP's plugin to be what the loader takes."""
    return "" if context.plugin else "HARP's plugin is not what the loader finds."


def library(context: Context) -> str:
    """Need an NCCL library on the host; images carry their own."""
    return "" if context.facts.libraries else "No libnccl.so or librccl.so was found here."


def container(context: Context) -> str:
    """Need to be in a container."""
    return "" if context.facts.system.container else "This is no container."


def host(context: Context) -> str:
    """Need to be outside of containers."""
    return "That is the host's." if context.facts.system.container else ""
