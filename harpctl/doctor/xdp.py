# SPDX-License-Identifier: Apache-2.0
"""Checks of what AF_XDP needs of an ENI and the kernel, beyond the process's privileges (drivers.py).

Each finds before a job a reason for which the plugin falls back; docs/explanation/drivers.md has all of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.drivers import ONE_BUFFER_MTU, configured_drivers, kernel_release, on_xdp
from harpctl.doctor.model import CheckResult, check, fail, skip, warn
from harpctl.facts import text
from harpctl.facts.model import Eni
from harpctl.facts.xdp import ZERO_COPY
from harpctl.network.runtime import channels_command

PROTOCOLS = "/proc/net/protocols"
VIRTIO_SINCE = (6, 13)
HALF_THE_CHANNELS = {"ena", "gve"}  # the other half is for what an XDP program sends
# The largest MTU that a driver takes an XDP program for at all; more takes several buffers, which they lack.
NIC_MTU_MAX = {"ena": 3498, "gve": 2034, "mana": 3506}


@check("xdp.kernel", "The kernel has AF_XDP", needs.machine, needs.pair, validates=False)
def check_kernel(context: Context) -> Iterator[CheckResult]:
    """Look for the socket family: some distributions build kernels without CONFIG_XDP_SOCKETS."""
    protocols = text.read_clean(context.host, PROTOCOLS)
    names = {line.split()[0] for line in protocols.splitlines() if line.strip()}
    tried = on_xdp(context)
    if protocols and "XDP" not in names and tried:
        yield warn(
            f"This kernel was built without AF_XDP sockets; {', '.join(tried)} cannot have them.",
            "use a kernel with CONFIG_XDP_SOCKETS=y, or set driver = udp",
        )


def _virtio_lacks(context: Context, eni: Eni) -> tuple[str, str]:
    """Return what a virtio ENI lacks for zero-copy, and how it gets that; "" for nothing."""
    if (0, 0) < kernel_release(context) < VIRTIO_SINCE:
        return "virtio_net has it since Linux 6.13", "use a kernel of 6.13 or newer"
    if eni.xdp != ZERO_COPY:
        return (
            "its device lacks VIRTIO_F_ACCESS_PLATFORM",
            "give the device iommu_platform=on,disable-legacy=on in qemu; a cloud's is the cloud's",
        )
    if eni.mtu > ONE_BUFFER_MTU:
        return (
            f"virtio_net has none for packets of several frames, and the MTU is {eni.mtu}",
            f"ip link set dev {eni.name} mtu 3498  # on all hosts",
        )
    return "", ""


@check("xdp.virtio", "The virtio ENIs can have zero-copy", needs.pair, validates=False)
def check_virtio(context: Context) -> Iterator[CheckResult]:
    """Check what a virtio ENI needs for zero-copy: without it auto uses sockets, and xdp-zc fails."""
    drivers = dict(configured_drivers(context))
    left_out: dict[str, list[str]] = {}
    for eni in context.enis:
        if eni.driver != "virtio_net" or drivers[eni.name] not in {"auto", "xdp", "xdp-zc"}:
            continue
        reason, repair = _virtio_lacks(context, eni)
        cause = f"{eni.name} cannot have zero-copy AF_XDP: {reason}."
        if reason and drivers[eni.name] == "xdp-zc":
            yield fail(cause, repair)
        elif reason and eni.xdp == ZERO_COPY:
            yield warn(cause, repair)
        elif reason and eni.xdp:
            left_out.setdefault(reason, []).append(eni.name)
    for reason, names in left_out.items():
        yield skip(f"No zero-copy AF_XDP on {', '.join(names)}: {reason}.")


@check("xdp.channels", "The ENIs have channels to spare for XDP", needs.pair, validates=False)
def check_channels(context: Context) -> Iterator[CheckResult]:
    """Look for NICs that refuse a native program while more than half of their channels are in use."""
    tried = on_xdp(context)
    for eni in context.enis:
        most = max(eni.queues_max // 2, 1)
        if eni.name in tried and eni.driver in HALF_THE_CHANNELS and eni.queues_max and eni.queues > most:
            yield warn(
                f"{eni.driver} takes an XDP program while at most half of its channels are in use;"
                f" {eni.name} has {eni.queues} of {eni.queues_max}.",
                shlex.join(channels_command(eni, most, most)),
            )


@check("xdp.nic_mtu", "The ENIs take XDP programs at their MTU", needs.pair, validates=False)
def check_nic_mtu(context: Context) -> Iterator[CheckResult]:
    """Look for MTUs beyond what a NIC's driver takes a native program for."""
    tried = on_xdp(context)
    for eni in context.enis:
        most = NIC_MTU_MAX.get(eni.driver, 0)
        if eni.name in tried and most and eni.mtu > most:
            yield warn(
                f"{eni.driver} takes an XDP program up to an MTU of {most}; {eni.name} has {eni.mtu}.",
                f"ip link set dev {eni.name} mtu {most}  # on all hosts, or set driver = udp",
            )
