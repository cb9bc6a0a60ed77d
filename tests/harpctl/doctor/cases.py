# SPDX-License-Identifier: Apache-2.0
"""For every check: how a healthy host is spoilt, and what the check then says. One function per case."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from harpctl.confs.conf import conf_path
from harpctl.doctor.context import Options
from harpctl.doctor.path_probe import REFUSED, SILENT, TOO_BIG
from harpctl.facts.model import GIB, MIB, BootEntry, CgroupPages, Cpu, Gpu, HugeMount, Library, NicRule, Pages
from harpctl.facts.nic_rules import location
from tests.harpctl.doctor.world import HARP, LIBRARY, World, plugin

Spoil = Callable[[World], None]


class Case(msgspec.Struct, frozen=True):
    """What is spoilt, and what is then said: the level, words of the cause, the repair's commands."""

    id: str
    level: str
    cause: str
    repair: tuple[str, ...]
    is_safe: bool
    spoil: Spoil


CASES: list[Case] = []


def case(id_: str, level: str, cause: str, *repair: str, is_safe: bool = False) -> Callable[[Spoil], Spoil]:
    def enter(spoil: Spoil) -> Spoil:
        CASES.append(Case(id_, level, cause, repair, is_safe, spoil))
        return spoil

    return enter


# ---- hugepages ----


def _pages(world: World, total: int, free: int) -> None:
    world.change("memory", hugepages=(Pages(size=GIB, total=total, free=free),))


def _without_arguments(world: World) -> None:
    world.change(
        "boot", cmdline="root=/dev/vda1", entries=(BootEntry(title="Ubuntu", source="grub.cfg", args="ro"),)
    )


@case("hugepages.present", "fail", "There are no hugepages of 1 GiB.", "harpctl setup --now")
def no_pages(world: World) -> None:
    _pages(world, 0, 0)
    _without_arguments(world)


@case("hugepages.present", "fail", "yet; the next boot brings 20", "reboot")
def pages_after_reboot(world: World) -> None:
    _pages(world, 0, 0)
    world.change("boot", cmdline="root=/dev/vda1")


@case("hugepages.present", "fail", "There are no hugepages of 1 GiB.", "harpctl setup  # on the host")
def no_pages_in_container(world: World) -> None:
    _pages(world, 0, 0)
    world.change("boot", entries=())
    world.in_container()
    world.as_tree()


@case(
    "hugepages.enough",
    "warn",
    "1 pages of 1 GiB for 2 GPUs, whose ranks take 4",
    "harpctl setup --hugepages auto --now",
)
def few_pages(world: World) -> None:
    _pages(world, 1, 1)


@case(
    "hugepages.promised",
    "fail",
    "asks for 20 pages of 1 GiB, and the kernel has 7",
    "harpctl setup --hugepages 7",
)
def broken_promise(world: World) -> None:
    _pages(world, 7, 7)


@case(
    "hugepages.nodes",
    "warn",
    "Node 1 has none, so eth2 works in memory of another node",
    "harpctl setup --now",
)
def one_node_bare(world: World) -> None:
    nodes = world.facts.memory.nodes
    world.change("memory", nodes=(nodes[0], replace(nodes[1], hugepages=())))


@case(
    "hugepages.free",
    "warn",
    "All 20 pages of 1 GiB are taken",
    "grep -l hugepages /proc/[0-9]*/maps; ls -l /dev/hugepages",
)
def all_taken(world: World) -> None:
    _pages(world, 20, 0)


@case(
    "hugepages.cgroup",
    "fail",
    "limit on pages of 1 GiB is 0 bytes: none",
    'set resources.limits["hugepages-1Gi"] of the pod to "20Gi"',
)
def cgroup_forbids(world: World) -> None:
    world.change("limits", hugetlb=(CgroupPages(size=GIB, limit=0, usage=0),))


@case(
    "hugepages.cgroup",
    "fail",
    "has used up its limit on pages of 1 GiB",
    'set resources.limits["hugepages-1Gi"] of the pod to "20Gi"',
)
def cgroup_used_up(world: World) -> None:
    world.change("limits", hugetlb=(CgroupPages(size=GIB, limit=2 * GIB, usage=2 * GIB),))


@case(
    "hugepages.usable",
    "fail",
    "20 pages of 1 GiB are free, but using one failed: it was killed by SIGBUS",
    "docker run ... (without a hugetlb limit), or hugepages limits in the pod's resources",
)
def page_refused(world: World) -> None:
    assert world.machine
    world.machine.page = "it was killed by SIGBUS"


@case("hugepages.processor", "fail", "no 1 GiB pages", "harpctl setup --page-size 2M")
def old_processor(world: World) -> None:
    world.change("memory", has_1g=False)


MOUNT = "mount -t hugetlbfs -o pagesize=1024M hugetlbfs /dev/hugepages"


@case("hugepages.mount", "fail", "No hugetlbfs is mounted on /dev/hugepages", MOUNT, is_safe=True)
def no_mount(world: World) -> None:
    world.change("memory", mounts=())


@case(
    "hugepages.mount",
    "fail",
    "/dev/hugepages of the host is not mounted into this container",
    "docker run ... -v /dev/hugepages:/dev/hugepages",
)
def no_mount_in_container(world: World) -> None:
    world.change("memory", mounts=())
    world.in_container()


@case(
    "hugepages.mount_size", "warn", "pages of 2 MiB, and 1024 MiB are wanted", "umount /dev/hugepages", MOUNT
)
def mount_of_other_size(world: World) -> None:
    world.change("memory", mounts=(HugeMount(path="/dev/hugepages", page_size=2 * MIB, options="rw"),))


@case("hugepages.mount_writable", "fail", "read-only", "mount -o remount,rw /dev/hugepages")
def mount_read_only(world: World) -> None:
    mount = HugeMount(path="/dev/hugepages", page_size=GIB, options="ro", is_writable=False)
    world.change("memory", mounts=(mount,))


@case("hugepages.mount_kept", "fail", "Neither systemd's dev-hugepages.mount nor /etc/fstab", "harpctl setup")
def mount_not_kept(world: World) -> None:
    world.remove("/usr/lib/systemd/system/dev-hugepages.mount")
    world.write("/etc/fstab", "# hugetlbfs /dev/hugepages hugetlbfs defaults 0 0\n")


# ---- conf files ----


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


@case("confs.names", "fail", "refuses the name of", f"mv {DIR}/ztcp-a.conf {DIR}/ztcp0.conf")
def bad_name(world: World) -> None:
    world.write(f"{DIR}/ztcp-a.conf", "[eni]\ninterface = eth0\n")


@case("confs.count", "fail", "There are 17", f"rm {DIR}/ztcp16.conf")
def too_many(world: World) -> None:
    for number in (0, *range(3, 17)):
        world.write(conf_path(number), f"[eni]\ninterface = eth{number}\n")


@case(
    "confs.parse",
    "fail",
    "ztcp1.conf:3: key 'mtu' = 'big': expected a number from 576 to 65536",
    "harpctl setup  # writes it again; or correct it by hand",
)
def not_a_conf(world: World) -> None:
    world.write(conf_path(1), "[eni]\ninterface = eth1\nmtu = big\n")


@case(
    "confs.parse",
    "fail",
    "cannot be read",
    "harpctl setup  # writes it again; or correct it by hand",
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
    f"sed -i 's/^\\s*interface\\s*=.*/interface = eth1/' {conf_path(1)}",
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
    f"sed -i 's/^\\s*address\\s*=.*/address = 10.0.1.11/' {conf_path(1)}",
)
def other_address(world: World) -> None:
    world.conf(1, address="10.9.9.9")


@case(
    "confs.mtu",
    "fail",
    "mtu = 9000, but eth1 has 1500",
    "ip link set dev eth1 mtu 9000",
)
def mtu_below_the_conf(world: World) -> None:
    world.eni("eth1", mtu=1500)


@case("confs.mtu", "fail", "but eth1 has 1500", f"sed -i 's/^\\s*mtu\\s*=.*/mtu = 1500/' {conf_path(1)}")
def mtu_beyond_the_device(world: World) -> None:
    world.eni("eth1", mtu=1500, mtu_max=1500)


@case(
    "confs.pci",
    "fail",
    "pci = 0000:09:00.0, but eth1 is at 0000:01:00.0",
    f"sed -i 's/^\\s*pci\\s*=.*/pci = 0000:01:00.0/' {conf_path(1)}",
)
def other_pci(world: World) -> None:
    world.conf(1, pci="0000:09:00.0")


@case(
    "confs.numa",
    "warn",
    "numa = 1, but eth1 is on node 0",
    f"sed -i 's/^\\s*numa\\s*=.*/numa = 0/' {conf_path(1)}",
)
def other_node(world: World) -> None:
    world.conf(1, numa=1)


@case(
    "confs.queues",
    "warn",
    "queues = 16, but eth1 has at most 8",
    f"sed -i 's/^\\s*queues\\s*=.*/queues = 8/' {conf_path(1)}",
)
def many_queues(world: World) -> None:
    world.conf(1, queues=16)


@case(
    "confs.speed",
    "warn",
    "Unknown for eth1: NCCL is told 10000 Mbit/s",
    f"sed -i '/^\\[eni\\]/a speed_mbps = 100000' {conf_path(1)}  # with the speed that you pay for",
)
def unknown_speed(world: World) -> None:
    world.conf(1, speed_mbps=None)
    world.eni("eth1", speed_mbps=0)


@case("confs.gpu", "warn", "gpu = 5, but this host has GPUs 0 to 1", "harpctl setup")
def absent_gpu(world: World) -> None:
    world.conf(1, gpu=5)


@case("confs.gpu", "warn", f"gpu = 0 stands in {conf_path(1)} already", "harpctl setup")
def gpu_twice(world: World) -> None:
    world.conf(2, gpu=0)


@case("confs.distinct", "fail", f"eth1 is taken by {conf_path(1)}", f"rm {conf_path(2)}")
def interface_twice(world: World) -> None:
    world.confs[2] = replace(world.confs[1], cores=None)


@case(
    "confs.job_keys",
    "fail",
    f"peer_timeout = 30, but {conf_path(1)} has 10",
    f"sed -i 's/^\\s*peer_timeout\\s*=.*/peer_timeout = 10/' {conf_path(2)}",
)
def timeouts_differ(world: World) -> None:
    world.conf(1, peer_timeout=10)
    world.conf(2, peer_timeout=30)


@case("confs.cores", "fail", "there is no core 8, 9 (cores: 0 to 7)", "harpctl setup")
def absent_cores(world: World) -> None:
    world.conf(1, cores=(1, 8, 9))


@case("confs.cores_shared", "fail", f"core 1 stands in {conf_path(1)} already", "harpctl setup")
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


# ---- ENIs ----


@case(
    "enis.count", "warn", "2 conf files for 3 GPUs", "bind 1 more ENIs to this instance, then harpctl setup"
)
def few_enis(world: World) -> None:
    gpu = Gpu(index=2, pci="0000:20:00.0", vendor="10de", device="20b0", node=1)
    world.facts = replace(world.facts, gpus=(*world.facts.gpus, gpu))


@case("enis.count", "warn", "2 conf files for 1 GPUs", "harpctl setup --enis eth1")
def few_gpus(world: World) -> None:
    world.facts = replace(world.facts, gpus=world.facts.gpus[:1])


@case(
    "enis.default_route",
    "warn",
    "eth1 carries the default route",
    "harpctl setup --enis NAME,...  # with secondary ENIs",
)
def primary_eni(world: World) -> None:
    world.eni("eth1", is_default_route=True)


@case("enis.device", "warn", "eth1 is a veth", "harpctl setup --enis NAME,...  # with secondary ENIs")
def software_eni(world: World) -> None:
    world.eni("eth1", kind="veth")


@case("enis.up", "fail", "eth1 is down", "ip link set dev eth1 up", is_safe=True)
def eni_down(world: World) -> None:
    world.eni("eth1", is_up=False, has_link=False)


@case("enis.link", "fail", "eth1 is up and has no link", "ethtool eth1", "dmesg | grep eth1")
def no_link(world: World) -> None:
    world.eni("eth1", has_link=False)


@case(
    "enis.address",
    "fail",
    "eth1 has no address",
    "harpctl setup --address eth1=10.0.1.11/24  # with its subnet's length",
)
def no_address(world: World) -> None:
    world.eni("eth1", addresses=("fe80::1/64",))


@case("enis.address_once", "fail", "10.0.1.11 is on eth1 and on eth2", "ip addr del 10.0.1.11/24 dev eth2")
def address_twice(world: World) -> None:
    world.eni("eth2", addresses=("10.0.2.12/24", "10.0.1.11/24"))


@case("enis.mtu_equal", "warn", "eth1 has 9000, eth2 has 9500", "ip link set dev eth1 mtu 9500")
def mtus_differ(world: World) -> None:
    world.eni("eth2", mtu=9500)


@case("enis.mtu_least", "warn", "eth1 has MTU 1400", "ip link set dev eth1 mtu 1500")
def small_mtu(world: World) -> None:
    world.conf(1, mtu=1400)


@case("enis.mtu_least", "fail", "eth1 has MTU 1200, and HARP needs 1280", "ip link set dev eth1 mtu 1500")
def refused_mtu(world: World) -> None:
    world.conf(1, mtu=None)
    world.eni("eth1", mtu=1200)


@case("enis.egress", "fail", "from 10.0.1.11 to 10.0.2.13 the kernel sends through eth2", "harpctl setup")
def wrong_way_out(world: World) -> None:
    assert world.machine
    world.machine.ways[("10.0.1.11", "10.0.2.13")] = "eth2"


@case("enis.egress", "fail", "the kernel has no way from 10.0.1.11 to 10.0.1.1", "harpctl setup")
def no_way_out(world: World) -> None:
    assert world.machine
    world.machine.ways[("10.0.1.11", "10.0.1.1")] = ""


def _one_subnet(world: World) -> None:
    world.eni("eth2", addresses=("10.0.1.12/24",), gateway="10.0.1.1")
    world.conf(2, address="10.0.1.12", gateway="10.0.1.1")


@case(
    "enis.arp",
    "fail",
    "eth1 shares its subnet with another interface, and its arp_ignore is 0",
    "sysctl -w net/ipv4/conf/eth1/arp_ignore=1",
    is_safe=True,
)
def arp_flux(world: World) -> None:
    _one_subnet(world)
    for name in ("all", "eth1"):
        world.write(f"/proc/sys/net/ipv4/conf/{name}/arp_ignore", "0\n")


@case(
    "enis.rp_filter",
    "fail",
    "eth2 shares its subnet with another interface, and its rp_filter is 1",
    "sysctl -w net/ipv4/conf/eth2/rp_filter=2",
    is_safe=True,
)
def strict_filter(world: World) -> None:
    _one_subnet(world)
    for name in ("all", "eth2"):
        world.write(f"/proc/sys/net/ipv4/conf/{name}/rp_filter", "1\n")


# ---- plugin ----

PARKED = "/usr/lib/x86_64-linux-gnu/bak.libnccl-net.so"
SECOND = "/usr/lib/x86_64-linux-gnu/libnccl-net-harp.so"


@case("plugin.installed", "warn", "No libnccl-net.so is in the loader's path", "harpctl install")
def not_installed(world: World) -> None:
    world.copies = ()


@case("plugin.installed", "warn", f"parked as {PARKED}", "harpctl enable")
def turned_off(world: World) -> None:
    world.copies = (plugin(PARKED, "bak."),)


@case(
    "plugin.first",
    "fail",
    "NCCL takes /opt/x/libnccl-net.so, which is the plugin AWS Libfabric, as it has the plain name and"
    f" NCCL_NET_PLUGIN is not set; HARP's, {LIBRARY}, is behind it",
    "harpctl install --name harp",
)
def another_plugin_first(world: World) -> None:
    other = plugin("/opt/x/libnccl-net.so", elf=replace(HARP, name="AWS Libfabric"))
    world.copies = (other, plugin())


@case(
    "plugin.first",
    "fail",
    f"which is the plugin AWS Libfabric, as it has the plain name and NCCL_NET_PLUGIN is not set;"
    f" HARP is beside it as {SECOND}",
    "export NCCL_NET_PLUGIN=harp",
)
def beside_another_plugin(world: World) -> None:
    other = plugin("/opt/x/libnccl-net.so", elf=replace(HARP, name="AWS Libfabric"))
    world.copies = (other, replace(plugin(SECOND), name="libnccl-net-harp.so"))


@case("plugin.installed", "fail", f"HARP is installed as {SECOND}", "export NCCL_NET_PLUGIN=harp")
def only_the_second_name(world: World) -> None:
    world.copies = (replace(plugin(SECOND), name="libnccl-net-harp.so"),)


@case(
    "plugin.installed",
    "warn",
    "NCCL takes /opt/net.so by NCCL_NET_PLUGIN=/opt/net.so (/root/.nccl.conf) alone.",
    "harpctl install --name plain",
)
def only_for_one_user(world: World) -> None:
    world.write("/root/.nccl.conf", "NCCL_NET_PLUGIN=/opt/net.so\n")
    world.copies = (replace(plugin("/opt/net.so"), name="net.so", aliases=("/opt/net.so",)),)


@case("nccl.net_plugin", "fail", "look for harp and libnccl-net-harp.so", "harpctl install --name harp")
def second_name_is_not_there(world: World) -> None:
    world.write("/etc/nccl.conf", "NCCL_NET_PLUGIN=harp\n")


@case("nccl.net_plugin", "fail", "look for harp and libnccl-net-harp.so", "harpctl enable")
def second_name_is_turned_off(world: World) -> None:
    world.write("/etc/nccl.conf", "NCCL_NET_PLUGIN=harp\n")
    parked = plugin(SECOND.replace("libnccl", "bak.libnccl"), "bak.")
    world.copies = (*world.copies, replace(parked, name="libnccl-net-harp.so"))


@case(
    "nccl.net_plugin",
    "fail",
    "NCCL_NET_PLUGIN=none (environment) makes NCCL 2.21.5 look for none",
    "export NCCL_NET_PLUGIN=harp",
)
def turned_off_beside_another_plugin(world: World) -> None:
    beside_another_plugin(world)
    world.environment["NCCL_NET_PLUGIN"] = "none"


@case(
    "nccl.net_plugin",
    "fail",
    "NCCL 2.8.4 ignores NCCL_NET_PLUGIN=harp (environment) and takes /opt/x/libnccl-net.so.",
    "use NCCL 2.11 or newer, which heeds NCCL_NET_PLUGIN",
)
def older_than_the_variable(world: World) -> None:
    beside_another_plugin(world)
    world.environment["NCCL_NET_PLUGIN"] = "harp"
    libraries = (Library(path="/usr/lib/libnccl.so.2", version="2.8.4"),)
    world.facts = replace(world.facts, libraries=libraries)


@case("plugin.once", "warn", f"Beside {LIBRARY} there is {PARKED}", f"rm {PARKED}")
def plugin_twice(world: World) -> None:
    world.copies = (plugin(), plugin(PARKED, "bak."))


@case("plugin.readable", "fail", "has mode 0600", f"chmod a+r {LIBRARY}", is_safe=True)
def unreadable_plugin(world: World) -> None:
    (world.root / LIBRARY.lstrip("/")).chmod(0o600)


@case("plugin.sound", "fail", "is cut off", "harpctl install")
def damaged_plugin(world: World) -> None:
    world.copies = (plugin(elf=None, problem=f"{LIBRARY} is cut off: it has 12 of at least 99 bytes."),)


@case("plugin.fits", "fail", "is for aarch64, and this host is x86_64", "harpctl install")
def other_machine(world: World) -> None:
    world.copies = (plugin(elf=replace(HARP, machine="aarch64")),)


@case("plugin.fits", "fail", "needs glibc 2.38, and this host has 2.31", "harpctl install")
def newer_glibc(world: World) -> None:
    world.copies = (plugin(elf=replace(HARP, glibc="2.38")),)


@case("plugin.soname", "warn", "has the SONAME libnccl-net.so: ldconfig links", "harpctl install")
def has_soname(world: World) -> None:
    world.copies = (plugin(elf=replace(HARP, soname="libnccl-net.so")),)


@case("plugin.loads", "fail", "does not load: libcuda.so.1: cannot open", "harpctl install")
def does_not_load(world: World) -> None:
    assert world.machine
    world.machine.loading = "libcuda.so.1: cannot open shared object file"


@case("plugin.interface", "fail", "NCCL 2.6.4 (/usr/lib/libnccl.so.2) finds no interface", "harpctl install")
def no_common_interface(world: World) -> None:
    world.facts = replace(world.facts, libraries=(Library(path="/usr/lib/libnccl.so.2", version="2.6.4"),))


@case("plugin.nccl", "warn", "/usr/lib/libnccl.so.2 is NCCL 2.7.8", "use NCCL 2.8 or newer")
def old_nccl(world: World) -> None:
    world.facts = replace(world.facts, libraries=(Library(path="/usr/lib/libnccl.so.2", version="2.7.8"),))


# ---- variables ----


@case("nccl.net", "fail", "NCCL_NET=Socket (environment) makes NCCL use that network", "unset NCCL_NET")
def other_network(world: World) -> None:
    world.environment["NCCL_NET"] = "Socket"


@case("nccl.net", "fail", "NCCL_NET=IB (/etc/nccl.conf)", "sed -i '/^\\s*NCCL_NET\\s*=/d' /etc/nccl.conf")
def other_network_in_file(world: World) -> None:
    world.write("/etc/nccl.conf", "# fabric\nNCCL_NET=IB\n")


@case(
    "nccl.disable",
    "fail",
    "HARP_DISABLE=1 (/etc/nccl.conf)",
    "sed -i '/^\\s*HARP_DISABLE\\s*=/d' /etc/nccl.conf",
)
def switched_off(world: World) -> None:
    world.write("/etc/nccl.conf", "HARP_DISABLE=1\n")


@case(
    "nccl.net_plugin",
    "fail",
    "NCCL_NET_PLUGIN=none (/root/.nccl.conf)",
    "sed -i '/^\\s*NCCL_NET_PLUGIN\\s*=/d' /root/.nccl.conf",
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


# ---- drivers ----

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
    f"sed -i 's/^\\s*driver\\s*=.*/driver = auto/' {conf_path(1)}",
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
    world.eni("eth1", xdp="zero-copy")
    world.change("limits", capabilities=("cap_net_admin",))


MTU_REPAIR = "ip link set dev eth1 mtu 3498  # on all hosts, or set driver = udp"


@case("drivers.mtu", "warn", "MTUs over 3762 need Linux 6.6 with AF_XDP: eth1 cannot", MTU_REPAIR)
def jumbo_on_an_old_kernel(world: World) -> None:
    world.conf(1, driver="xdp")


@case("drivers.mtu", "warn", "MTUs over 3762 need Linux 6.6 with AF_XDP: eth1 cannot", MTU_REPAIR)
def jumbo_by_auto(world: World) -> None:
    world.eni("eth1", xdp="zero-copy")


@case(
    "drivers.program",
    "warn",
    "An XDP program is attached to eth1",
    "bpftool net show dev eth1",
    "ip link set dev eth1 xdp off",
)
def program_attached(world: World) -> None:
    world.eni("eth1", xdp_attached=True)


@case("drivers.modes", "skip", "xdp-zc would lack cap_net_raw, cap_bpf or cap_sys_admin.")
def rungs_out_of_reach(world: World) -> None:
    world.change("limits", capabilities=("cap_net_admin", "cap_ipc_lock"))


# ---- xdp ----


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


@case("xdp.rules", "skip", "Whose the rules in eth1 are is unknown: /proc/net/udp cannot be read.")
def rules_without_proc(world: World) -> None:
    _rules(world)


# ---- limits ----


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


@case(
    "limits.rmem", "warn", "net.core.rmem_max is 212992", "sysctl -w net.core.rmem_max=8388608", is_safe=True
)
def little_rmem(world: World) -> None:
    world.change("limits", capabilities=())


@case(
    "limits.wmem", "warn", "net.core.wmem_max is 212992", "sysctl -w net.core.wmem_max=8388608", is_safe=True
)
def little_wmem(world: World) -> None:
    world.change("limits", capabilities=())


@case("limits.root", "skip", "Without root")
def not_root(world: World) -> None:
    world.change("system", is_root=False)


@case("limits.root", "skip", "lspci is silent.")
def unknown_fact(world: World) -> None:
    world.facts = replace(world.facts, unknown=("lspci is silent.",))


# ---- system ----


@case("system.distribution", "warn", "Arch Linux is neither", "set it up by hand, as docs/operations.md says")
def unknown_distribution(world: World) -> None:
    world.change("system", family="", name="Arch Linux")


@case("system.gpus", "warn", "No GPU is on the PCI bus", "lspci -d 10de:")
def no_gpus(world: World) -> None:
    world.facts = replace(world.facts, gpus=())


@case("system.journal", "fail", "`harpctl setup` of 2026-11-21T15:00:00Z", "harpctl rollback")
def interrupted(world: World) -> None:
    _journal(world)


@case("system.arguments", "fail", "No boot entry asks for hugepages of 1 GiB", "harpctl setup")
def no_arguments(world: World) -> None:
    _without_arguments(world)


@case(
    "system.arguments", "fail", "do not ask for hugepages of 1 GiB: 'Rescue' (rescue.conf)", "harpctl setup"
)
def one_entry_without(world: World) -> None:
    entry = BootEntry(title="Rescue", source="rescue.conf", args="ro single")
    world.change("boot", entries=(*world.facts.boot.entries, entry))


def _journal(world: World, *records: dict[str, object]) -> None:
    begin = {
        "record": "begin",
        "format": 1,
        "version": "0.1",
        "id": "0001-x",
        "what": "harpctl setup",
        "time": "2026-11-21T15:00:00Z",
    }
    lines = "".join(json.dumps(record) + "\n" for record in (begin, *records))
    world.write("/var/lib/harp/journal/0001-x.jsonl", lines)


@case("system.reboot", "warn", "the next boot brings 20; set up at 2026-11-21T15:00:00Z.", "reboot")
def reboot_needed_since(world: World) -> None:
    reboot_needed(world)
    _journal(world, {"record": "done"})


@case("system.reboot", "warn", "booted with 4 hugepages of 1 GiB, and the next boot brings 20", "reboot")
def reboot_needed(world: World) -> None:
    world.change("boot", cmdline="hugepagesz=1G hugepages=0:2,1:2")


@case("system.unit", "warn", "harp.service is not there", "harpctl setup")
def no_unit(world: World) -> None:
    world.remove("/etc/systemd/system/harp.service")


@case("system.unit", "warn", "there and not enabled", "systemctl enable harp.service", is_safe=True)
def unit_not_enabled(world: World) -> None:
    world.remove("/etc/systemd/system/multi-user.target.wants/harp.service")


@case(
    "system.unit_passed",
    "warn",
    "harp.service failed at boot",
    "journalctl -b -u harp.service",
    "systemctl restart harp.service",
)
def unit_failed(world: World) -> None:
    world.runner.answers["systemctl is-failed harp.service"] = "failed\n"


# ---- container and namespace ----


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


@case("namespace.privileged", "warn", "not privileged: only the udp driver", "docker run ... --privileged")
def not_privileged(world: World) -> None:
    world.in_container()
    world.change("limits", capabilities=("cap_net_raw",))


# ---- peer ----


def _peer(world: World, **changes: object) -> None:
    world.options = Options(peers=("10.0.1.99",))
    assert world.machine
    world.machine.reached = replace(world.machine.reached, **changes)


RULE = "nft insert rule inet filter input {} dport {{ 17700, 32768-60999 }} ip saddr {} accept"
NFT = f"{RULE}  # on 10.0.1.99, if it filters"
GROUP = "allow {} 32768-60999 from {} in the security group of 10.0.1.99"


def _allow(kind: str, source: str) -> tuple[str, str]:
    return NFT.format(kind, source), GROUP.format(kind, source)


@case(
    "peer.name",
    "fail",
    "no-such-host.invalid has no address",
    "give the addresses of its ENIs: --peer ADDRESS,ADDRESS",
)
def unknown_peer(world: World) -> None:
    world.options = Options(peers=("no-such-host.invalid", "10.0.1.99"))


@case(
    "peer.name",
    "fail",
    "No ENI of this host has a conf file and an address of the peer's family",
    "harpctl setup",
)
def peer_of_another_family(world: World) -> None:
    world.options = Options(peers=("fd00::9",))


@case("peer.udp", "fail", "eth1 (10.0.1.11) to 10.0.1.99: no answer", *_allow("udp", "10.0.1.11"))
def silent_peer(world: World) -> None:
    _peer(world, udp=SILENT, full="", ports={}, tcp={})


@case(
    "peer.mtu",
    "fail",
    "of the MTU 9000, it vanishes; 1500 bytes pass",
    "ip link set dev eth1 mtu 1500  # on both hosts, or raise it between them",
)
def black_hole(world: World) -> None:
    _peer(world, full=SILENT, passed=1500)


@case(
    "peer.mtu",
    "fail",
    "a router says it is too big; 1450 bytes pass",
    "ip link set dev eth1 mtu 1450  # on both hosts, or raise it between them",
)
def told_too_big(world: World) -> None:
    _peer(world, full=TOO_BIG, passed=1450)


@case(
    "peer.both_ways",
    "warn",
    "Nobody listens on port 17700 of 10.0.1.99",
    "harpctl doctor --serve --port 17700  # on the peer, then again here",
)
def no_responder(world: World) -> None:
    _peer(world, udp=REFUSED, full=REFUSED)


@case("peer.ports", "warn", "UDP port 60999 is silent", *_allow("udp", "10.0.1.11"))
def dropped_port(world: World) -> None:
    _peer(world, ports={32768: REFUSED, 60999: SILENT})


@case("peer.tcp", "fail", "TCP port 60999: no answer", *_allow("tcp", "10.0.1.11"))
def dropped_tcp(world: World) -> None:
    _peer(world, tcp={17700: REFUSED, 60999: SILENT})
