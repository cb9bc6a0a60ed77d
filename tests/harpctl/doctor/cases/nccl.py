# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of NCCL's and HARP's variables."""

from __future__ import annotations

from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World


@case("nccl.net", "fail", "NCCL_NET=Socket (environment) selects that network", "unset NCCL_NET")
def other_network(world: World) -> None:
    world.environment["NCCL_NET"] = "Socket"


@case("nccl.net", "fail", "NCCL_NET=IB (/etc/nccl.conf)", "harpctl edit /etc/nccl.conf --unset NCCL_NET")
def other_network_in_file(world: World) -> None:
    world.write("/etc/nccl.conf", "# fabric\nNCCL_NET=IB\n")


@case(
    "nccl.disable",
    "fail",
    "HARP_DISABLE=1 (/etc/nccl.conf)",
    "harpctl edit /etc/nccl.conf --unset HARP_DISABLE",
)
def switched_off(world: World) -> None:
    world.write("/etc/nccl.conf", "HARP_DISABLE=1\n")


@case(
    "nccl.net_plugin",
    "fail",
    "NCCL_NET_PLUGIN=none (/root/.nccl.conf)",
    "harpctl edit /root/.nccl.conf --unset NCCL_NET_PLUGIN",
)
def no_plugin_wanted(world: World) -> None:
    world.write("/root/.nccl.conf", "NCCL_NET_PLUGIN=none\n")


@case(
    "nccl.socket_ifname",
    "warn",
    "NCCL_SOCKET_IFNAME=ib0 (environment) fits none of eth0",
    "unset NCCL_SOCKET_IFNAME",
)
def absent_bootstrap(world: World) -> None:
    world.environment["NCCL_SOCKET_IFNAME"] = "ib0"


@case("nccl.harp_ifname", "warn", "HARP_IFNAME=eth1 (environment) is set, so the files", "unset HARP_IFNAME")
def files_not_read(world: World) -> None:
    world.environment["HARP_IFNAME"] = "eth1"


@case(
    "nccl.harp_values",
    "fail",
    "HARP_PATHS=99 (environment) is refused; expected a number from 1 to 16",
    "unset HARP_PATHS",
)
def wrong_value(world: World) -> None:
    world.environment["HARP_PATHS"] = "99"


@case(
    "nccl.harp_names",
    "warn",
    "HARP_PATH (environment) does nothing; HARP_PATHS was probably meant",
    "unset HARP_PATH",
)
def misspelt(world: World) -> None:
    world.environment["HARP_PATH"] = "3"
