# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of the packet drivers."""

from __future__ import annotations

from harpctl.confs.conf import conf_path
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World

PRIVILEGED = "docker run --privileged ..."


@case("drivers.asked", "fail", "xdp lacks cap_net_raw, cap_bpf or cap_sys_admin", PRIVILEGED)
def lacks_capabilities(world: World) -> None:
    world.conf(1, driver="xdp")
    world.change("limits", capabilities=("cap_net_admin",))


@case("drivers.asked", "fail", "xdp-copy lacks Linux 5.9 (links to XDP programs)", PRIVILEGED)
def lacks_kernel(world: World) -> None:
    world.environment["HARP_DRIVER"] = "xdp-copy"
    world.change("system", kernel="3.10.0-1160.el7.x86_64")


@case("drivers.asked", "fail", "xdp-zc lacks 64 MiB of locked memory (ulimit -l)", PRIVILEGED)
def lacks_locked_memory(world: World) -> None:
    world.conf(1, driver="xdp-zc")
    world.change("limits", memlock=65536, capabilities=("cap_net_admin", "cap_net_raw", "cap_bpf"))


@case(
    "drivers.zero_copy",
    "warn",
    "eth1 (virtio_net) is not known for zero-copy AF_XDP",
    f"harpctl edit {conf_path(1)} --set driver=auto",
)
def zero_copy_unknown(world: World) -> None:
    world.conf(1, driver="xdp-zc")


@case(
    "drivers.auto",
    "warn",
    "eth1 could have zero-copy AF_XDP, not sockets: lacking cap_net_raw",
    PRIVILEGED,
)
def falls_to_sockets(world: World) -> None:
    world.change_eni("eth1", xdp="zero-copy")
    world.change("limits", capabilities=("cap_net_admin",))


MTU_REPAIR = "harpctl setup --mtu 3498  # on all hosts, or set driver = udp"


@case("drivers.mtu", "warn", "MTUs over 3762 need Linux 6.6 with AF_XDP: eth1 cannot", MTU_REPAIR)
def jumbo_on_an_old_kernel(world: World) -> None:
    world.conf(1, driver="xdp")


@case("drivers.mtu", "warn", "MTUs over 3762 need Linux 6.6 with AF_XDP: eth1 cannot", MTU_REPAIR)
def jumbo_by_auto(world: World) -> None:
    world.change_eni("eth1", xdp="zero-copy")


@case(
    "drivers.program",
    "warn",
    "An XDP program is attached to eth1",
    "bpftool net show dev eth1",
    "ip link set dev eth1 xdp off",
)
def program_attached(world: World) -> None:
    world.change_eni("eth1", xdp_attached=True)


@case("drivers.modes", "skip", "xdp-zc would lack cap_net_raw, cap_bpf or cap_sys_admin.")
def modes_out_of_reach(world: World) -> None:
    world.change("limits", capabilities=("cap_net_admin", "cap_ipc_lock"))
