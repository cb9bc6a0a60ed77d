# SPDX-License-Identifier: Apache-2.0
"""Facts: everything that plans and checks need to know of a host, as plain data.

Sizes are bytes, speeds Mbit/s, node numbers -1 where unknown, texts empty where unknown. A fact that
could not be read is unknown, never guessed. `harpctl facts --json` prints exactly this.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from harpctl.units import MIB


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all facts."""


class System(Struct, frozen=True, kw_only=True):
    """The distribution, the kernel, and where we stand on the machine."""

    id: str = ""  # os-release ID: ubuntu, debian, centos, rocky, tencentos, tlinux ...
    version: str = ""  # os-release VERSION_ID
    name: str = ""  # os-release PRETTY_NAME
    family: str = ""  # "debian" or "rhel"; "" when neither
    kernel: str = ""  # uname -r
    arch: str = ""  # uname -m
    glibc: str = ""  # its version, e.g. 2.36
    init: str = ""  # "systemd" or ""
    container: str = ""  # "docker", "podman", "kubernetes", "lxc" ...; "" outside
    is_root: bool = False
    python: str = ""  # the Python of harpctl itself


class BootEntry(Struct, frozen=True, kw_only=True):
    """One entry of the boot menu with the kernel arguments it really passes."""

    title: str
    source: str  # the file that holds it
    args: str  # kernel arguments, variables such as $kernelopts expanded


class Boot(Struct, frozen=True, kw_only=True):
    """The source of the kernel command line."""

    loader: str = ""  # "grub", "bls" (GRUB reading BLS entries), "ostree"; "" unknown
    defaults: str = ""  # /etc/default/grub where it is there
    dropins: tuple[str, ...] = ()  # /etc/default/grub.d/*.cfg, in order
    harp_args: str = ""  # what an earlier setup put there for later kernels
    config: str = ""  # the grub.cfg that is read at boot
    is_efi: bool = False
    entries: tuple[BootEntry, ...] = ()
    cmdline: str = ""  # the running kernel's command line; "" in a tree without proc
    reason: str = ""  # why the loader is what it is, or why it is unknown


class Pages(Struct, frozen=True, kw_only=True):
    """Hugepages of one size, of the host or of one node."""

    size: int
    total: int
    free: int


class Node(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    id: int
    memory: int
    free: int
    cpus: tuple[int, ...]
    hugepages: tuple[Pages, ...] = ()


class HugeMount(Struct, frozen=True, kw_only=True):
    """A mounted hugetlbfs."""

    path: str
    page_size: int
    options: str
    is_writable: bool = True


class PageSetting(Struct, frozen=True, kw_only=True):
    """A line of sysctl's files that sets a count of hugepages of the default size at every boot."""

    path: str
    line: int
    name: str
    value: str


class Memory(Struct, frozen=True, kw_only=True):
    """Memory and hugepages."""

    total: int = 0  # 0: unknown
    available: int = 0
    has_1g: bool | None = None  # the processor has 1 GiB pages; None: unknown
    default_page: int = 0  # Hugepagesize
    kernel_default: int = 2 * MIB  # what it is where no kernel argument sets it
    settings: tuple[PageSetting, ...] = ()
    hugepages: tuple[Pages, ...] = ()
    nodes: tuple[Node, ...] = ()
    mounts: tuple[HugeMount, ...] = ()


class Cpu(Struct, frozen=True, kw_only=True):
    """One logical processor."""

    id: int
    node: int
    core: tuple[int, ...]  # the hardware threads of its core, itself included


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU, found by its PCI class and vendor."""

    index: int  # in PCI order, as nvidia-smi counts by default
    pci: str
    vendor: str  # "10de"
    device: str
    node: int
    path: tuple[str, ...] = ()  # the PCI bridges above it, from the root complex down


class Eni(Struct, frozen=True, kw_only=True):
    """One network interface that may carry HARP."""

    name: str
    altnames: tuple[str, ...] = ()  # further names, by which the kernel finds it as well
    index: int = 0
    mac: str = ""
    driver: str = ""
    kind: str = ""  # "" a device, "port" one that a bridge or bond holds, else veth, bridge, bond, vlan ...
    addresses: tuple[str, ...] = ()  # with prefix length: 10.0.1.5/24; IPv4 first, no link-local ones
    gateway: str = ""  # the gateway of this interface's own subnet, where some route names one
    is_default_route: bool = (
        False  # the route has the best metric; also what lies below such a bridge, bond or vlan
    )
    carries_ssh: bool = False  # the session that runs harpctl comes over it, or over what lies on it
    is_up: bool = False
    has_link: bool = False
    mtu: int = 0
    mtu_max: int = 0  # 0: unknown
    queues: int = 0  # channels in use; 0: unknown
    queues_tx: int = 0  # those that send, where channels receive or send; 0: each does both
    queues_max: int = 0
    speed_mbps: int = 0  # 0: unknown to the driver
    pci: str = ""
    path: tuple[str, ...] = ()  # the PCI bridges above it
    node: int = -1
    xdp: str = ""  # best mode the driver is known for: "zero-copy", "native", "generic"
    xdp_attached: bool = False
    lower: tuple[str, ...] = ()  # the interfaces that it is above, as a vlan is
    is_port: bool = False  # a bridge, a bond or Open vSwitch holds it, whatever its kind is
    forwards: bool = False  # packets that come in are forwarded to other interfaces, of IPv4 or IPv6
    # The largest packets of TCP that are handed to it (gso) and up from it (gro), in bytes; those without
    # ipv4 are for IPv6 where the kernel has both. None: the kernel has no such size, or it is unknown.
    gso_max_size: int | None = None
    gro_max_size: int | None = None
    gso_ipv4_max_size: int | None = None
    gro_ipv4_max_size: int | None = None
    tso_max_size: int | None = None  # the most that the device takes

    def is_one(self, names: Collection[str] | None) -> bool:
        """Return whether one of its names is among these; of None all are."""
        return names is None or not {self.name, *self.altnames}.isdisjoint(names)


class CgroupPages(Struct, frozen=True, kw_only=True):
    """The hugetlb limit of the cgroup we are in."""

    size: int
    limit: int  # bytes; -1: none
    usage: int


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of this process."""

    memlock: int | None = None  # bytes, soft limit; -1: unlimited; None: unknown
    nofile: int | None = None
    hugetlb: tuple[CgroupPages, ...] = ()
    capabilities: tuple[str, ...] | None = None  # effective ones, as "cap_net_admin"; None: unknown


class Library(Struct, frozen=True, kw_only=True):
    """A libnccl.so, or AMD's librccl.so, found on the host."""

    path: str
    version: str = ""  # "2.21.5"; "" when the file does not contain it

    @property
    def is_rccl(self) -> bool:
        """Return whether it is RCCL."""
        return self.path.rpartition("/")[2].startswith("librccl.")


class PluginFile(Struct, frozen=True, kw_only=True):
    """A file that is, or was, the plugin under one of its names."""

    path: str
    form: str  # "installed", "bak.", "_bak", "moved", "typo"
    target: str = ""  # where a link leads
    version: str = ""  # HARP's, where it is ours
    is_harp: bool = False


class Mount(Struct, frozen=True, kw_only=True):
    """One line of /proc/mounts."""

    source: str
    path: str
    kind: str
    options: str


class Facts(Struct, frozen=True, kw_only=True):
    """All facts of one host."""

    system: System
    boot: Boot
    memory: Memory
    cpus: tuple[Cpu, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    enis: tuple[Eni, ...] = ()  # those of our network namespace
    foreign_links: tuple[str, ...] = ()  # what /sys shows of another one: a pod without hostNetwork
    limits: Limits = Limits()
    libraries: tuple[Library, ...] = ()
    plugins: tuple[PluginFile, ...] = ()
    conf_files: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    tools: dict[str, str] = {}  # program -> path, "" where it is missing
    unknown: tuple[str, ...] = ()  # what could not be found out, and why, one sentence each

    def find_eni(self, name: str) -> Eni | None:
        """Return the interface of that name, or else with that alternative name."""
        named = (eni for eni in self.enis if eni.name == name)
        return next(named, next((eni for eni in self.enis if name in eni.altnames), None))

    def name_of(self, name: str) -> str:
        """Return the kernel's name of the interface of that name, or the same text where there is none."""
        eni = self.find_eni(name)
        return eni.name if eni else name


class Overrides(Struct, frozen=True, kw_only=True):
    """Facts that the operator states because a tree does not hold them; they take precedence.

    None and empty: not overridden, the host's own facts count.
    """

    gpus: int | None = None
    memory: int | None = None  # bytes
    enis: tuple[str, ...] = ()  # interfaces that exist although sys does not show them
    addresses: dict[str, str] = {}  # interface -> address with prefix length
    gateways: dict[str, str] = {}  # interface -> next hop of its subnet
    macs: dict[str, str] = {}
