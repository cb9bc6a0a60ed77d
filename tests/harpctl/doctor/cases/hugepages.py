# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of the hugepages."""

from __future__ import annotations

from msgspec.structs import replace

from harpctl.facts.model import BootEntry, CgroupPages, HugeMount, Pages, PageSetting
from harpctl.units import GIB, MIB
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World


def set_pages(world: World, total: int, free: int) -> None:
    world.change("memory", hugepages=(Pages(size=GIB, total=total, free=free),))


def without_arguments(world: World) -> None:
    world.change(
        "boot", cmdline="root=/dev/vda1", entries=(BootEntry(title="Ubuntu", source="grub.cfg", args="ro"),)
    )


@case("hugepages.present", "fail", "There are no hugepages of 1 GiB.", "harpctl setup --now")
def no_pages(world: World) -> None:
    set_pages(world, 0, 0)
    without_arguments(world)


@case("hugepages.present", "fail", "yet; the next boot brings 20", "reboot")
def pages_after_reboot(world: World) -> None:
    set_pages(world, 0, 0)
    world.change("boot", cmdline="root=/dev/vda1")


@case("hugepages.present", "fail", "There are no hugepages of 1 GiB.", "harpctl setup  # on the host")
def no_pages_in_container(world: World) -> None:
    set_pages(world, 0, 0)
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
    set_pages(world, 1, 1)


@case(
    "hugepages.promised",
    "fail",
    "asks for 20 pages of 1 GiB, and the kernel has 7",
    "harpctl setup --hugepages 7",
)
def broken_promise(world: World) -> None:
    set_pages(world, 7, 7)


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
    "All 20 pages of 1 GiB are in use",
    "grep -l hugepages /proc/[0-9]*/maps; ls -l /dev/hugepages",
)
def all_taken(world: World) -> None:
    set_pages(world, 20, 0)


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


@case(
    "hugepages.sysctl",
    "fail",
    "/etc/sysctl.d/60-db.conf:3: vm.nr_hugepages = 4096 replaces",
    "harpctl edit /etc/sysctl.d/60-db.conf --comment 3",
)
def sysctl_count(world: World) -> None:
    setting = PageSetting(path="/etc/sysctl.d/60-db.conf", line=3, name="vm.nr_hugepages", value="4096")
    world.change("memory", settings=(setting,))


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


@case("hugepages.mount_size", "warn", "pages of 2 MiB, and 1024 MiB are wanted", "umount /dev/hugepages", MOUNT)
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
