# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of AF_XDP."""

from __future__ import annotations

from harpctl.facts.model import NicRule
from harpctl.facts.nic_rules import location
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
    world.eni("eth1", xdp="native")
    world.change("system", kernel="6.18.1")


@case("xdp.virtio", "skip", "No zero-copy AF_XDP on eth1: its device lacks VIRTIO_F_ACCESS_PLATFORM.")
def virtio_left_to_auto(world: World) -> None:
    world.eni("eth1", xdp="native")
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
    "ip link set dev eth1 mtu 3498  # on all hosts",
)
def virtio_with_jumbo_packets(world: World) -> None:
    world.eni("eth1", xdp="zero-copy")
    world.change("system", kernel="6.18.1")


@case(
    "xdp.channels",
    "warn",
    "ena takes an XDP program while at most half of its channels are in use; eth1 has 8 of 8.",
    "ethtool -L eth1 combined 4",
)
def all_channels_in_use(world: World) -> None:
    world.eni("eth1", xdp="zero-copy", driver="ena")


@case(
    "xdp.nic_mtu",
    "warn",
    "ena takes an XDP program up to an MTU of 3498; eth1 has 9000.",
    "ip link set dev eth1 mtu 3498  # on all hosts, or set driver = udp",
)
def mtu_over_the_nics(world: World) -> None:
    world.eni("eth1", driver="ena", queues=4)
    world.conf(1, driver="xdp")


UDP_SOCKETS = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer
  312: 0B01000A:9C40 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0
  313: 00000000:9C41 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0 0
"""


def _rules(world: World) -> None:
    """Make rules for two ports that sockets have, for two that none has, and for a foreign address."""
    ports = {"10.0.1.11": (40000, 40001, 40002, 40003), "10.0.1.77": (40004,)}
    rules = tuple(
        NicRule(location=location(port, 1024), address=address, port=port)
        for address, numbers in ports.items()
        for port in numbers
    )
    world.eni("eth1", rules=rules)


@case(
    "xdp.rules",
    "warn",
    "Killed processes have left rules in eth1 for UDP ports that nobody has: 40002, 40003.",
    "ethtool -N eth1 delete 3",
    "ethtool -N eth1 delete 2",
)
def rules_of_killed_processes(world: World) -> None:
    _rules(world)
    world.write("/proc/net/udp", UDP_SOCKETS)


@case("xdp.rules", "skip", "The owners of the rules in eth1 are unknown: /proc/net/udp cannot be read.")
def rules_without_proc(world: World) -> None:
    _rules(world)
