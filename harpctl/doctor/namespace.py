# SPDX-License-Identifier: Apache-2.0
"""Checks of a container, pod or namespace: it shows what the plugin needs of the host."""

from __future__ import annotations

from collections.abc import Iterator

from harpctl.confs.conf import TOOLS_DIR
from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, fail, warn

HOST_NETWORK = "docker run ... --net=host  # of a pod: hostNetwork: true"


@check("namespace.interfaces", "This network namespace has the interfaces that /sys shows", needs.machine)
def check_interfaces(context: Context) -> Iterator[CheckResult]:
    """Compare sysfs with the kernel: a pod without hostNetwork sees the host's ENIs in /sys, and has none."""
    absent = context.facts.foreign_links
    if not absent:
        return
    cause = f"/sys shows {', '.join(absent)} of another network namespace than this one"
    if needed := [conf.interface for _path, conf in context.confs if conf.interface in absent]:
        yield fail(f"{cause}; the conf files name {', '.join(needed)}.", HOST_NETWORK)
    else:
        yield warn(f"{cause}.", HOST_NETWORK)


@check("namespace.sys", "/sys shows the host's devices", needs.machine, needs.container, validates=False)
def check_sys(context: Context) -> Iterator[CheckResult]:
    """Look for the PCI bus and the network in sysfs."""
    if not context.host.is_dir("/sys/bus/pci/devices"):
        yield warn("This container has no /sys/bus/pci.", "docker run ... -v /sys:/sys")


@check("namespace.tools", f"{TOOLS_DIR} of the host is mounted", needs.container, validates=False)
def check_tools(context: Context) -> Iterator[CheckResult]:
    """Look for the directory that containers are given."""
    if not context.host.is_dir(TOOLS_DIR):
        yield warn(f"{TOOLS_DIR} is not in this container.", f"docker run ... -v {TOOLS_DIR}:{TOOLS_DIR}")


@check(
    "namespace.privileged",
    "The container may do what the faster drivers need",
    needs.machine,
    needs.container,
    validates=False,
)
def check_privileged(context: Context) -> Iterator[CheckResult]:
    """Look at the capabilities in a container: the udp and tcp drivers need none."""
    have = context.facts.limits.capabilities or ()
    if "cap_sys_admin" not in have:
        yield warn(
            "This container is not privileged: AF_XDP is not available, and UDP sockets get the buffers that"
            " net.core.rmem_max allows.",
            "docker run ... --privileged",
        )
