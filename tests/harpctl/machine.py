# SPDX-License-Identifier: Apache-2.0
"""Directory trees that stand for whole machines: a distribution's own files and the proc and sys of a shape.

What a distribution ships lies in tests/trees/<name>/ as it is in its cloud image, shortened; everything that
follows from the machine's shape (cards, interfaces, memory, processors) is written here.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

TREES = Path(__file__).resolve().parents[1] / "trees"
DEBIAN_DISTROS = ("ubuntu-18.04", "ubuntu-20.04", "ubuntu-22.04", "ubuntu-24.04", "debian-12")
RHEL_DISTROS = ("centos-7", "rocky-8", "rocky-9", "tencentos-2.4", "tencentos-3.1", "tencentos-4")
DISTROS = DEBIAN_DISTROS + RHEL_DISTROS
CGROUP_V1 = ("ubuntu-18.04", "ubuntu-20.04", "centos-7", "rocky-8", "tencentos-2.4", "tencentos-3.1")

GIB = 1 << 30
KIB_PER_GIB = 1 << 20
NO_LIMIT_V1 = 9223372036854771712
ALL_CAPABILITIES = "000001ffffffffff"
ROOT_COMPLEXES = (0x10, 0x30, 0x80, 0xA0)  # two GPUs and two ENIs below each, the first two on node 0
COMMON = (
    "usr/bin/mount usr/bin/systemctl usr/bin/systemd-detect-virt usr/sbin/ip usr/sbin/sysctl "
    "usr/sbin/ethtool usr/sbin/modprobe usr/sbin/ldconfig usr/bin/ssh"
)
DEBIAN = "usr/sbin/update-grub usr/sbin/update-grub2 usr/sbin/grub-mkconfig usr/bin/apt-get usr/bin/dpkg"
UBUNTU = f"{DEBIAN} usr/sbin/netplan usr/bin/networkctl"
RHEL = (
    "usr/sbin/grub2-mkconfig usr/bin/grub2-editenv usr/sbin/grubby usr/sbin/ifup usr/sbin/ifdown "
    "usr/sbin/restorecon usr/bin/rpm usr/bin/yum"
)
NM = "usr/bin/nmcli usr/sbin/NetworkManager"
PROGRAMS = {
    "ubuntu-18.04": UBUNTU,
    "ubuntu-20.04": UBUNTU,
    "ubuntu-22.04": UBUNTU,
    "ubuntu-24.04": UBUNTU,
    "debian-12": f"{DEBIAN} usr/sbin/ifup usr/sbin/ifdown usr/bin/networkctl",
    "centos-7": RHEL,
    "tencentos-2.4": RHEL,
    "rocky-8": f"{RHEL} {NM}",
    "tencentos-3.1": f"{RHEL} {NM}",
    "rocky-9": f"{RHEL} {NM}".replace("usr/sbin/ifup usr/sbin/ifdown ", ""),
    "tencentos-4": f"{RHEL} {NM}".replace("usr/sbin/ifup usr/sbin/ifdown ", ""),
}
UNMERGED = ("ubuntu-18.04",)  # /bin and /sbin are directories of their own
OWN_SBIN = ("ip", "sysctl", "ethtool", "modprobe", "ldconfig")
OWN_BIN = ("mount", "systemctl", "networkctl")
MODES = {  # git keeps only the executable bit
    "boot/grub/grub.cfg": 0o444,
    "etc/NetworkManager/system-connections/cloud-init-eth0.nmconnection": 0o600,
    "etc/netplan/50-cloud-init.yaml": 0o600,
}


@dataclass(frozen=True)
class Shape:
    """Parts of a machine. ENIs do not count eth0, which always is there and holds the default route.

    The first `addressed` ENIs have the addresses 10.0.N.1N/24; eth1 also has a default route, a worse one.
    """

    gpus: int = 8
    enis: int = 8
    addressed: int = 4
    driver: str = "virtio_net"
    cpus: int = 96
    nodes: int = 2
    memory_gib: int = 948
    hugepages: dict[int, int] = field(default_factory=dict)  # node -> 1 GiB pages, all free
    has_1g: bool = True


SHAPES = {
    "gpu8": Shape(),
    "gpu1": Shape(gpus=1, enis=1, addressed=1, cpus=16, nodes=1, memory_gib=96),
    "gpu2": Shape(gpus=2, enis=2, addressed=2, cpus=32, nodes=1, memory_gib=192),
    "gpu4": Shape(gpus=4, enis=4, cpus=48, memory_gib=474),
    "nogpu": Shape(gpus=0),
    "few-enis": Shape(enis=4),
    "small-memory": Shape(memory_gib=32),
    "ena": Shape(driver="ena"),
    "prepared": Shape(addressed=8, hugepages={0: 25, 1: 25}),
}


def build_machine(folder: Path, distro: str, shape: str | Shape = "gpu8") -> Path:
    """Write a machine's tree into a folder, which may be there but is not to hold one; return the folder."""
    what = SHAPES[shape] if isinstance(shape, str) else shape
    shutil.copytree(TREES / distro, folder, symlinks=True, dirs_exist_ok=True)
    for path, mode in MODES.items():
        if (folder / path).is_file():
            (folder / path).chmod(mode)
    for path in (
        "dev/hugepages",
        "var/lib",
        "var/log",
        "run",
        "tmp",
        "root",
        "usr/local/lib",
        "etc/sysctl.d",
    ):
        (folder / path).mkdir(parents=True, exist_ok=True)
    _add_programs(folder, distro)
    _add_kernels(folder)
    _Sys(folder, distro, what).write()
    return folder


def _add_programs(folder: Path, distro: str) -> None:
    libraries = "usr/lib/x86_64-linux-gnu" if distro in DEBIAN_DISTROS else "usr/lib64"
    (folder / libraries).mkdir(parents=True, exist_ok=True)
    for path in f"{COMMON} {PROGRAMS[distro]} usr/local/bin/harpctl".split():
        name = path.rsplit("/", 1)[1]
        if distro in UNMERGED and name in OWN_SBIN:
            path = f"sbin/{name}"  # noqa: PLW2901
        if distro in UNMERGED and name in OWN_BIN:
            path = f"bin/{name}"  # noqa: PLW2901
        program = folder / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
        program.chmod(0o755)


def _add_kernels(folder: Path) -> None:
    """Make the kernels and initial ramdisks that the boot menu names, empty."""
    for config in (*folder.glob("boot/**/grub.cfg"), *folder.glob("boot/loader/entries/*.conf")):
        for name in re.findall(r"/((?:vmlinuz|initrd\.img|initramfs)-\S+)", config.read_text()):
            (folder / "boot" / name).touch()


def _cpu_list(cpus: list[int]) -> str:
    """Write numbers as the kernel does: 0-3,8-11."""
    parts: list[str] = []
    for cpu in cpus:
        if parts and int(parts[-1].split("-")[-1]) == cpu - 1:
            parts[-1] = f"{parts[-1].split('-')[0]}-{cpu}"
        else:
            parts.append(str(cpu))
    return ",".join(parts)


class _Sys:
    """Writes the proc and sys of one shape."""

    def __init__(self, folder: Path, distro: str, shape: Shape) -> None:
        self.folder = folder
        self.shape = shape
        self.is_v1 = distro in CGROUP_V1
        self.kernel = (folder / "proc/sys/kernel/osrelease").read_text().strip()

    def write(self) -> None:
        """Write all of it."""
        self._write_memory()
        self._write_cpus()
        for number in range(self.shape.gpus):
            self._write_gpu(number)
        for number in range(self.shape.enis + 1):
            self._write_eni(number)
        self._write_loopback()
        self._write_routes()
        self._write_mounts()
        self._write_process()

    def _write_file(self, path: str, text: str | int) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n" if not str(text).endswith("\n") else str(text))

    def _make_link(self, path: str, target: str) -> None:
        """Make a relative link to a path of the tree, as sysfs does."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        depth = len(Path(path).parts) - 1
        file.symlink_to("../" * depth + target)

    # ---- memory and processors ----

    def _write_pages(self, folder: str, kib: int, count: int) -> None:
        for name, value in (("nr", count), ("free", count), ("surplus", 0)):
            self._write_file(f"{folder}/hugepages-{kib}kB/{name}_hugepages", value)

    def _write_memory(self) -> None:
        shape = self.shape
        pages = sum(shape.hugepages.values())
        total, taken = shape.memory_gib * KIB_PER_GIB, pages * KIB_PER_GIB
        default_kib = KIB_PER_GIB if pages else 2048
        free = total - taken
        self._write_file(
            "proc/meminfo",
            f"MemTotal:       {total} kB\nMemFree:        {free - 8 * KIB_PER_GIB} kB\n"
            f"MemAvailable:   {free - 4 * KIB_PER_GIB} kB\n"
            f"HugePages_Total:   {pages:5}\nHugePages_Free:    {pages:5}\nHugePages_Rsvd:        0\n"
            f"HugePages_Surp:        0\nHugepagesize:    {default_kib} kB\nHugetlb:        {taken} kB\n",
        )
        self._write_pages("sys/kernel/mm/hugepages", 2048, 0)
        if shape.has_1g:
            self._write_pages("sys/kernel/mm/hugepages", KIB_PER_GIB, pages)
        self._write_file("sys/devices/system/node/online", _cpu_list(list(range(shape.nodes))))
        for node in range(shape.nodes):
            base = f"sys/devices/system/node/node{node}"
            kib, own = total // shape.nodes, shape.hugepages.get(node, 0)
            free = kib - own * KIB_PER_GIB - 4 * KIB_PER_GIB
            self._write_file(
                f"{base}/meminfo",
                f"Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:        {free} kB\n"
                f"Node {node} HugePages_Total: {own:5}\nNode {node} HugePages_Free:  {own:5}\n",
            )
            self._write_file(f"{base}/cpulist", _cpu_list(self._node_cpus(node)))
            self._write_pages(f"{base}/hugepages", 2048, 0)
            if shape.has_1g:
                self._write_pages(f"{base}/hugepages", KIB_PER_GIB, own)

    def _node_cpus(self, node: int) -> list[int]:
        """Return a node's processors: a share of the first half, and their hardware threads in the second."""
        half = self.shape.cpus // 2
        share = half // self.shape.nodes
        first = list(range(node * share, (node + 1) * share))
        return first + [cpu + half for cpu in first]

    def _write_cpus(self) -> None:
        half = self.shape.cpus // 2
        page_flag = "pdpe1gb " if self.shape.has_1g else ""
        info = []
        for cpu in range(self.shape.cpus):
            core = cpu % half
            self._write_file(
                f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{core},{core + half}"
            )
            info.append(
                f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\n"
                f"flags\t\t: fpu pse sse2 ht {page_flag}rdtscp lm avx2 hypervisor\n\n"
            )
        self._write_file("proc/cpuinfo", "".join(info))
        self._write_file("sys/devices/system/cpu/online", f"0-{self.shape.cpus - 1}")

    # ---- devices ----

    def _node_of(self, number: int, count: int) -> int:
        return number * self.shape.nodes // max(count, 1)

    def _pci_device(self, number: int, count: int, slot: int, ids: tuple[str, str, str]) -> tuple[str, str]:
        """Write a PCI device below a switch that two GPUs and two ENIs share; return its path and address."""
        node = self._node_of(number, count)
        per_node = len(ROOT_COMPLEXES) // 2
        pair = number // 2 % per_node + (per_node if node else 0)
        bus = ROOT_COMPLEXES[pair]
        port = slot + number % 2
        chain = [f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:{port:02x}.0"]
        address = f"0000:{bus + 3 + port:02x}:00.0"
        parent = f"sys/devices/pci0000:{bus:02x}"
        for bridge in chain:
            parent = f"{parent}/{bridge}"
            if not (self.folder / parent / "class").exists():
                self._pci_files(parent, bridge, ("0x060400", "0x1000", "0xc010"), node)
        self._pci_files(f"{parent}/{address}", address, ids, node)
        return f"{parent}/{address}", address

    def _pci_files(self, path: str, address: str, ids: tuple[str, str, str], node: int) -> None:
        for name, text in zip(("class", "vendor", "device"), ids, strict=True):
            self._write_file(f"{path}/{name}", text)
        self._write_file(f"{path}/numa_node", node)
        self._make_link(f"sys/bus/pci/devices/{address}", path)

    def _write_gpu(self, number: int) -> None:
        self._pci_device(number, self.shape.gpus, 0, ("0x030200", "0x10de", "0x20b0"))

    def _write_eni(self, number: int) -> None:
        driver = self.shape.driver
        ids = ("0x020000", "0x1d0f", "0xec20") if driver == "ena" else ("0x020000", "0x1af4", "0x1000")
        if number == 0:
            path, pci = "sys/devices/pci0000:00/0000:00:05.0", "0000:00:05.0"
            self._pci_files(path, pci, ids, 0)
        else:
            path, pci = self._pci_device(number - 1, self.shape.enis, 2, ids)
        device = f"{path}/virtio{number}" if driver == "virtio_net" else path
        bus = "virtio" if driver == "virtio_net" else "pci"
        (self.folder / f"sys/bus/{bus}/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        (self.folder / device).mkdir(exist_ok=True)
        self._make_link(f"{device}/driver", f"sys/bus/{bus}/drivers/{driver}")
        self._write_interface(number, device)

    def _write_interface(self, number: int, device: str) -> None:
        name, shape = f"eth{number}", self.shape
        net = f"{device}/net/{name}"
        is_up = number <= shape.addressed
        values: dict[str, str | int] = {
            "address": f"52:54:00:00:00:{0x10 + number:02x}",
            "mtu": 1500,
            "operstate": "up" if is_up else "down",
            "ifindex": number + 2,
            "iflink": number + 2,
            "type": 1,
            "flags": "0x1003" if is_up else "0x1002",
            "uevent": f"INTERFACE={name}\nIFINDEX={number + 2}\n",
        }
        if is_up:
            values["carrier"] = 1
            values["speed"] = -1 if shape.driver == "virtio_net" else 25000
        for key, value in values.items():
            self._write_file(f"{net}/{key}", value)
        for queue in range(8):
            (self.folder / f"{net}/queues/rx-{queue}").mkdir(parents=True)
            (self.folder / f"{net}/queues/tx-{queue}").mkdir(parents=True)
        self._make_link(f"{net}/device", device)
        self._make_link(f"sys/class/net/{name}", net)

    def _write_loopback(self) -> None:
        net = "sys/devices/virtual/net/lo"
        words = "address=00:00:00:00:00:00 mtu=65536 operstate=unknown ifindex=1 iflink=1 type=772 flags=0x9"
        for word in words.split():
            self._write_file(f"{net}/{word.split('=')[0]}", word.split("=")[1])
        self._make_link("sys/class/net/lo", net)

    # ---- addresses and routes ----

    def _write_routes(self) -> None:
        """Write the files of /proc: eth0 10.0.0.10/24, ethN 10.0.N.1N/24, a default route by each of two."""
        shape = self.shape
        lines = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"]
        locals_, links = ["127.0.0.1/8"], []
        for number in range(min(shape.addressed, shape.enis) + 1):
            lines.append(f"eth{number}\t00{number:02X}000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n")
            locals_.append(f"10.0.{number}.{10 + number}/24")
            links.append(
                f"fe80000000000000505400fffe0000{0x10 + number:02x} {number + 2:02x} 40 20 80     eth{number}"
            )
        lines.insert(1, "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n")
        if shape.addressed and shape.enis:
            lines.append("eth1\t00000000\t0101000A\t0003\t0\t0\t101\t00000000\t0\t0\t0\n")
        self._write_file("proc/net/route", "".join(lines))
        trie = "  +-- 0.0.0.0/0 3 0 5\n"
        for local in locals_:
            ip, prefix = local.split("/")
            subnet = ip.rsplit(".", 1)[0] + ".0" if ip != "127.0.0.1" else "127.0.0.0"
            trie += f"     +-- {subnet}/{prefix} 2 0 2\n        |-- {subnet}\n           /{prefix} link UNICAST\n"
            trie += f"        |-- {ip}\n           /32 host LOCAL\n"
        self._write_file("proc/net/fib_trie", f"Main:\n{trie}Local:\n{trie}")
        links.append("00000000000000000000000000000001 01 80 10 80       lo")
        self._write_file("proc/net/if_inet6", "\n".join(links) + "\n")
        for name in ("all", "default", "lo", *(f"eth{n}" for n in range(shape.enis + 1))):
            for key, value in (("rp_filter", 1), ("arp_ignore", 0), ("arp_announce", 0)):
                self._write_file(f"proc/sys/net/ipv4/conf/{name}/{key}", value)

    # ---- mounts and the process ----

    def _write_mounts(self) -> None:
        size = "1024M" if self.shape.hugepages else "2M"
        lines = [
            "/dev/vda1 / ext4 rw,relatime 0 0",
            "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0",
            "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0",
            f"hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize={size} 0 0",
        ]
        if self.is_v1:
            lines.append("tmpfs /sys/fs/cgroup tmpfs ro,nosuid,nodev,noexec,mode=755 0 0")
            lines.append("cgroup /sys/fs/cgroup/hugetlb cgroup rw,nosuid,nodev,noexec,relatime,hugetlb 0 0")
        else:
            lines.append("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0")
        self._write_file("proc/mounts", "\n".join(lines) + "\n")

    def _write_process(self) -> None:
        v1 = "5:hugetlb:/\n4:memory:/user.slice\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n"
        v2 = "0::/user.slice/user-0.slice/session-1.scope\n"
        self._write_file("proc/self/cgroup", v1 if self.is_v1 else v2)
        for size in ("2MB", "1GB"):
            if self.is_v1:
                self._write_file(f"sys/fs/cgroup/hugetlb/hugetlb.{size}.limit_in_bytes", NO_LIMIT_V1)
                self._write_file(f"sys/fs/cgroup/hugetlb/hugetlb.{size}.usage_in_bytes", 0)
            else:
                own = "sys/fs/cgroup/user.slice/user-0.slice/session-1.scope"
                self._write_file(f"{own}/hugetlb.{size}.max", "max")
                self._write_file(f"{own}/hugetlb.{size}.current", 0)
        self._write_file("proc/self/status", f"Name:\tcat\nUid:\t0\t0\t0\t0\nCapEff:\t{ALL_CAPABILITIES}\n")
        self._write_file("proc/1/comm", "systemd")
        (self.folder / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        self._write_file(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max open files            1024                 262144               files     \n"
            "Max locked memory         65536                65536                bytes     \n",
        )


def with_shape(shape: str, **changes: object) -> Shape:
    """Return a named shape with some of its values changed."""
    return replace(SHAPES[shape], **changes)  # type: ignore[arg-type]
