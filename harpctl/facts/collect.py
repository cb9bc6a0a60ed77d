# SPDX-License-Identifier: Apache-2.0
"""Gathers all facts of a host. What a host lacks is no error: it is listed as unknown, with the reason."""

from __future__ import annotations

import msgspec

from harpctl.confs.files import find_confs
from harpctl.console import LAYOUT
from harpctl.facts.boot_loader import EFI_LINK, collect_boot
from harpctl.facts.cpu import collect_cpus
from harpctl.facts.eni import collect_enis
from harpctl.facts.gpu import collect_gpus
from harpctl.facts.limits import collect_limits
from harpctl.facts.memory import collect_memory, collect_mounts
from harpctl.facts.model import Facts, Overrides
from harpctl.facts.plugin_files import find_libraries, find_plugins
from harpctl.facts.system import collect_system
from harpctl.facts.tools import collect_tools
from harpctl.host.host import Host
from harpctl.records import escape_texts

NO_OVERRIDES = Overrides()


def collect_facts(host: Host, overrides: Overrides = NO_OVERRIDES) -> Facts:
    """Gather the facts of a host; `overrides` take precedence over what the host shows.

    The GPUs are those found; a number of GPUs among the overrides is used by planners only.
    """
    unknown: list[str] = []
    system = collect_system(host, unknown)
    mounts = collect_mounts(host)
    memory = collect_memory(host, mounts, overrides.memory, unknown)
    enis, foreign = collect_enis(host, overrides, system.kernel, unknown)
    boot = collect_boot(host)
    if not boot.loader:
        unknown.append(f"The boot loader is unknown: {boot.reason or 'nothing of it was found'}.")
    if host.is_loop(EFI_LINK):
        unknown.append(f"Which grub.cfg EFI reads is unknown: the symbolic links of {EFI_LINK} form a loop.")
    facts = Facts(
        system=system,
        boot=boot,
        memory=memory,
        cpus=collect_cpus(host, memory.nodes, unknown),
        gpus=collect_gpus(host, unknown),
        enis=enis,
        foreign_links=foreign,
        limits=collect_limits(host, mounts, unknown),
        libraries=find_libraries(host),
        plugins=find_plugins(host),
        conf_files=tuple(find_confs(host)),
        mounts=mounts,
        tools=collect_tools(host),
        unknown=tuple(unknown),
    )
    return _escape_facts(facts)


def _escape_facts(facts: Facts) -> Facts:
    """Escape what cannot be encoded: parts of file names and boot entries that are no UTF-8."""
    try:
        msgspec.json.encode(facts)
    except UnicodeEncodeError:
        return msgspec.convert(escape_texts(msgspec.to_builtins(facts), LAYOUT), Facts)
    return facts
