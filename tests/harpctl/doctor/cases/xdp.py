# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of AF_XDP."""

from __future__ import annotations

from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World


@case(
    "xdp.kernel",
    "warn",
    "This kernel was built without AF_XDP sockets; eth1 cannot have them.",
    "use a kernel with CONFIG_XDP_SOCKETS=y, or set driver = udp",
)
def kernel_without_af_xdp(world: World) -> None:
    world.conf(1, driver="xdp")
    world.write("/proc/net/protocols", "protocol  size sockets\nUDP       1344      2\n")


@case(
    "xdp.virtio",
    "fail",
    "eth1 cannot have zero-copy AF_XDP: its device lacks VIRTIO_F_ACCESS_PLATFORM.",
    "give the device iommu_platform=on,disable-legacy=on in qemu; a cloud's is the cloud's",
)
def virtio_without_platform_addresses(world: World) -> None:
    world.conf(1, driver="xdp-zc")
    world.change_eni("eth1", xdp="native")
    world.change("system", kernel="6.18.1")


@case("xdp.virtio", "skip", "No zero-copy AF_XDP on eth1: its device lacks VIRTIO_F_ACCESS_PLATFORM.")
def virtio_left_to_auto(world: World) -> None:
    world.change_eni("eth1", xdp="native")
    world.change("system", kernel="6.18.1")


@case(
    "xdp.virtio",
    "fail",
    "eth1 cannot have zero-copy AF_XDP: virtio_net has it since Linux 6.13.",
    "use a kernel of 6.13 or newer",
)
def virtio_on_an_old_kernel(world: World) -> None:
    world.conf(1, driver="xdp-zc")
    world.change("system", kernel="6.12.48+deb13")


@case(
    "xdp.virtio",
    "warn",
    "virtio_net has none for packets of several frames, and the MTU is 9000.",
    "harpctl setup --mtu 3498  # on all hosts",
)
def virtio_with_jumbo_packets(world: World) -> None:
    world.change_eni("eth1", xdp="zero-copy")
    world.change("system", kernel="6.18.1")


@case(
    "xdp.channels",
    "warn",
    "ena takes an XDP program while at most half of its channels are in use; eth1 has 8 of 8.",
    "ethtool -L eth1 combined 4",
)
def all_channels_in_use(world: World) -> None:
    world.change_eni("eth1", xdp="zero-copy", driver="ena")


@case(
    "xdp.channels",
    "warn",
    "gve takes an XDP program while at most half of its channels are in use; eth1 has 8 of 8.",
    "ethtool -L eth1 rx 4 tx 4",
)
def all_channels_of_two_kinds_in_use(world: World) -> None:
    world.change_eni("eth1", xdp="zero-copy", driver="gve", queues_tx=8)


@case(
    "xdp.nic_mtu",
    "warn",
    "ena takes an XDP program up to an MTU of 3498; eth1 has 9000.",
    "harpctl setup --mtu 3498  # on all hosts, or set driver = udp",
)
def mtu_over_the_nics(world: World) -> None:
    world.change_eni("eth1", driver="ena", queues=4)
    world.conf(1, driver="xdp")
