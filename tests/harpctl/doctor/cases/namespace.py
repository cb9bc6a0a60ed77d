# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of containers and namespaces."""

from __future__ import annotations

from msgspec.structs import replace

from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.cases.confs import no_confs_in_container
from tests.harpctl.doctor.world import World

NETWORK = ("docker run ... --net=host  # of a pod: hostNetwork: true",)


@case(
    "namespace.interfaces",
    "fail",
    "another network namespace than this one; the conf files name eth1",
    *NETWORK,
)
def pod_without_host_network(world: World) -> None:
    enis = tuple(eni for eni in world.facts.enis if eni.name == "eth0")
    world.facts = replace(world.facts, enis=enis, foreign_links=("eth1", "eth2"))


@case("namespace.interfaces", "warn", "/sys shows docker0 of another network namespace", *NETWORK)
def harmless_mismatch(world: World) -> None:
    world.facts = replace(world.facts, foreign_links=("docker0",))


@case("namespace.sys", "warn", "no /sys/bus/pci", "docker run ... -v /sys:/sys")
def no_sys(world: World) -> None:
    world.in_container()
    (world.root / "sys/bus/pci/devices").rmdir()


@case(
    "namespace.tools",
    "warn",
    "/usr/local/tfabric/tools is not in this container",
    "docker run ... -v /usr/local/tfabric/tools:/usr/local/tfabric/tools",
)
def no_tools(world: World) -> None:
    no_confs_in_container(world)


@case("namespace.privileged", "warn", "not privileged: AF_XDP is not available", "docker run ... --privileged")
def not_privileged(world: World) -> None:
    world.in_container()
    world.change("limits", capabilities=("cap_net_raw",))
