# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of the conf files."""

from __future__ import annotations

from msgspec.structs import replace

from harpctl.confs.conf import conf_path
from harpctl.facts.model import Cpu
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World


@case("confs.present", "fail", "no ztcp*.conf in /usr/local/tfabric/tools/config", "harpctl setup")
def no_confs(world: World) -> None:
    world.confs.clear()


@case(
    "confs.present",
    "fail",
    "is not in this container",
    "docker run ... -v /usr/local/tfabric/tools:/usr/local/tfabric/tools",
)
def no_confs_in_container(world: World) -> None:
    world.confs.clear()
    world.in_container()
    (world.root / "usr/local/tfabric/tools/config").rmdir()
    (world.root / "usr/local/tfabric/tools").rmdir()


DIR = "/usr/local/tfabric/tools/config"


@case("confs.names", "fail", "refuses the name of", f"harpctl edit {DIR}/ztcp-a.conf --move-to {DIR}/ztcp0.conf")
def bad_name(world: World) -> None:
    world.write(f"{DIR}/ztcp-a.conf", "[eni]\ninterface = eth0\n")


@case("confs.count", "fail", "There are 17", f"harpctl edit {DIR}/ztcp16.conf --delete")
def too_many(world: World) -> None:
    for number in (0, *range(3, 17)):
        world.write(conf_path(number), f"[eni]\ninterface = eth{number}\n")


@case(
    "confs.parse",
    "fail",
    "ztcp1.conf:3: key 'mtu' = 'big': expected a number from 576 to 65536",
    f"harpctl edit {conf_path(1)} --move-to {conf_path(1)}.bak  # or correct it by hand",
    "harpctl setup",
)
def not_a_conf(world: World) -> None:
    world.write(conf_path(1), "[eni]\ninterface = eth1\nmtu = big\n")


@case(
    "confs.parse",
    "fail",
    "cannot be read",
    f"harpctl edit {conf_path(1)} --move-to {conf_path(1)}.bak  # or correct it by hand",
    "harpctl setup",
)
def conf_is_a_directory(world: World) -> None:
    (world.root / conf_path(1).lstrip("/")).mkdir()


@case("confs.mode", "warn", "Anyone may write", f"chmod o-w {conf_path(1)}", is_safe=True)
def anyone_writes(world: World) -> None:
    world.context()
    (world.root / conf_path(1).lstrip("/")).chmod(0o666)


@case("confs.interface", "fail", "there is no interface eth7 (there are: eth0, eth1, eth2)", "harpctl setup")
def absent_interface(world: World) -> None:
    world.conf(1, interface="eth7", mac=None)


@case(
    "confs.interface",
    "fail",
    "its MAC 52:54:00:00:00:01 is eth1's: the names moved",
    f"harpctl edit {conf_path(1)} --set interface=eth1",
)
def renamed_interface(world: World) -> None:
    world.conf(1, interface="ens9")


@case(
    "confs.mac",
    "fail",
    "mac = 52:54:00:00:00:02, but eth1 has 52:54:00:00:00:01; that is eth2's",
    "harpctl setup",
)
def swapped_mac(world: World) -> None:
    world.conf(1, mac="52:54:00:00:00:02")


@case("confs.mac", "fail", "and no interface has that one", "harpctl setup")
def foreign_mac(world: World) -> None:
    world.conf(1, mac="52:54:00:00:00:99")


@case(
    "confs.address",
    "fail",
    "address = 10.9.9.9, but eth1 has 10.0.1.11",
    f"harpctl edit {conf_path(1)} --set address=10.0.1.11",
)
def other_address(world: World) -> None:
    world.conf(1, address="10.9.9.9")


@case(
    "confs.mtu",
    "fail",
    "mtu = 9000, but eth1 has 1500",
    "harpctl setup --mtu 9000",
)
def mtu_below_the_conf(world: World) -> None:
    world.change_eni("eth1", mtu=1500)


@case("confs.mtu", "fail", "but eth1 has 1500", f"harpctl edit {conf_path(1)} --set mtu=1500")
def mtu_beyond_the_device(world: World) -> None:
    world.change_eni("eth1", mtu=1500, mtu_max=1500)


@case(
    "confs.pci",
    "fail",
    "pci = 0000:09:00.0, but eth1 is at 0000:01:00.0",
    f"harpctl edit {conf_path(1)} --set pci=0000:01:00.0",
)
def other_pci(world: World) -> None:
    world.conf(1, pci="0000:09:00.0")


@case(
    "confs.numa",
    "warn",
    "numa = 1, but eth1 is on node 0",
    f"harpctl edit {conf_path(1)} --set numa=0",
)
def other_node(world: World) -> None:
    world.conf(1, numa=1)


@case(
    "confs.queues",
    "warn",
    "queues = 16, but eth1 has at most 8",
    f"harpctl edit {conf_path(1)} --set queues=8",
)
def many_queues(world: World) -> None:
    world.conf(1, queues=16)


@case(
    "confs.speed",
    "warn",
    "Unknown for eth1: the plugin reports 10000 Mbit/s to NCCL",
    f"harpctl edit {conf_path(1)} --set speed_mbps=MBPS  # the speed that you pay for",
)
def unknown_speed(world: World) -> None:
    world.conf(1, speed_mbps=None)
    world.change_eni("eth1", speed_mbps=0)


@case("confs.gpu", "warn", "gpu = 5, but this host has GPUs 0 to 1", "harpctl setup")
def absent_gpu(world: World) -> None:
    world.conf(1, gpu=5)


@case("confs.gpu", "warn", f"gpu = 0 is already in {conf_path(1)}", "harpctl setup")
def gpu_twice(world: World) -> None:
    world.conf(2, gpu=0)


@case("confs.distinct", "fail", f"eth1 is already in {conf_path(1)}", f"harpctl edit {conf_path(2)} --delete")
def interface_twice(world: World) -> None:
    world.confs[2] = replace(world.confs[1], cores=None)


@case("confs.distinct", "fail", f"eth1 is already in {conf_path(1)}", f"harpctl edit {conf_path(2)} --delete")
def interface_twice_by_an_alternative_name(world: World) -> None:
    world.change_eni("eth1", altnames=("enp3s1",))
    world.confs[2] = replace(world.confs[1], interface="enp3s1", cores=None)


@case(
    "confs.job_keys",
    "fail",
    f"peer_timeout = 30, but {conf_path(1)} has 10",
    f"harpctl edit {conf_path(2)} --set peer_timeout=10",
)
def timeouts_differ(world: World) -> None:
    world.conf(1, peer_timeout=10)
    world.conf(2, peer_timeout=30)


@case("confs.cores", "fail", "there is no core 8, 9 (cores: 0 to 7)", "harpctl setup")
def absent_cores(world: World) -> None:
    world.conf(1, cores=(1, 8, 9))


@case("confs.cores_shared", "fail", f"core 1 is already in {conf_path(1)}", "harpctl setup")
def shared_core(world: World) -> None:
    world.conf(1, devices="enis")
    world.conf(2, cores=(1, 5))


@case("confs.cores_apart", "warn", f"{conf_path(1)}: 0, 1 are hardware threads of one core", "harpctl setup")
def sibling_cores(world: World) -> None:
    pairs = [(n, n + 1) for n in (0, 2, 4, 6)]
    cpus = tuple(Cpu(id=n, node=n // 4, core=both) for both in pairs for n in both)
    world.facts = replace(world.facts, cpus=cpus)
    world.conf(2, cores=(4, 6))


@case("confs.cores_local", "warn", "eth2 is on node 1, core 3 on node 0", "harpctl setup")
def far_core(world: World) -> None:
    world.conf(2, cores=(3, 5))
