# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of limits."""

from __future__ import annotations

from msgspec.structs import replace

from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World


@case("limits.gso", "warn", "Linux 4.18.0-348.el8 has no UDP_GRO.", "use a kernel of 5.0 or newer")
def no_gro(world: World) -> None:
    world.change("system", kernel="4.18.0-348.el8")


@case(
    "limits.memlock",
    "warn",
    "64 KiB and CAP_IPC_LOCK",
    "ulimit -l unlimited",
)
def little_memlock(world: World) -> None:
    world.change("limits", memlock=65536, capabilities=("cap_net_admin",))


@case(
    "limits.nofile",
    "warn",
    "RLIMIT_NOFILE is 1024",
    "ulimit -n 65536",
)
def few_files(world: World) -> None:
    world.change("limits", nofile=1024)


@case("limits.rmem", "warn", "net.core.rmem_max is 212992", "sysctl -w net.core.rmem_max=8388608", is_safe=True)
def little_rmem(world: World) -> None:
    world.change("limits", capabilities=())


@case("limits.wmem", "warn", "net.core.wmem_max is 212992", "sysctl -w net.core.wmem_max=8388608", is_safe=True)
def little_wmem(world: World) -> None:
    world.change("limits", capabilities=())


@case(
    "limits.tcp",
    "warn",
    "net.ipv4.tcp_wmem allows 64 KiB",
    "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'",
)
def little_tcp_wmem(world: World) -> None:
    world.write("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t65536\n")


@case("limits.root", "skip", "Without root")
def not_root(world: World) -> None:
    world.change("system", is_root=False)


@case("limits.root", "skip", "lspci is silent.")
def unknown_fact(world: World) -> None:
    world.facts = replace(world.facts, unknown=("lspci is silent.",))
