# SPDX-License-Identifier: Apache-2.0
"""A host on which every check passes, to be spoilt in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harpctl.confs.conf import Conf, conf_of, conf_path, render_conf
from harpctl.confs.table import KEYS
from harpctl.doctor.context import Context, DoctorOptions
from harpctl.doctor.examine import run_checks
from harpctl.doctor.host_clock import ClockState
from harpctl.doctor.machine import Machine
from harpctl.doctor.model import Finding
from harpctl.doctor.path_probe import ECHO, REFUSED, ProbeResult
from harpctl.doctor.port_sweep import Sweep
from harpctl.facts.elf import Elf
from harpctl.facts.model import (
    Boot,
    BootEntry,
    Cpu,
    Eni,
    Facts,
    Gpu,
    HugeMount,
    Library,
    Limits,
    Memory,
    Node,
    Pages,
    System,
)
from harpctl.facts.plugin_files import Copy
from harpctl.facts.sources import RECORD
from harpctl.host.host import Host
from harpctl.host.runner import Completed
from harpctl.network.model import EniPlan, Interfaces, encode_record
from harpctl.plugin.compat import Platform
from harpctl.plugin.search import Taken
from harpctl.units import GIB, MIB

ARGS = "default_hugepagesz=1GB hugepagesz=1GB hugepages=20"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnccl-net.so"
CAPABILITIES = ("cap_net_admin", "cap_net_raw", "cap_bpf", "cap_sys_admin", "cap_ipc_lock")
HARP = Elf(machine="x86_64", glibc="2.17", abis=(12, 11, 10, 9, 8, 7, 6, 5, 4), name="HARP", version="1.0")


def make_copy(path: str = LIBRARY, form: str = "installed", elf: Elf | None = HARP, **changes: Any) -> Copy:
    """Make what E's search would find."""
    return Copy(path=path, form=form, folder=path.rpartition("/")[0], elf=elf, **changes)


@dataclass
class FakeMachine(Machine):
    """A machine that returns the answers set in it."""

    page: str = ""
    loading: str = ""
    state_of_clock: ClockState = field(default_factory=ClockState)
    ways: dict[tuple[str, str], str] = field(default_factory=dict)  # (source, target) -> interface
    reached: ProbeResult = field(
        default_factory=lambda: ProbeResult(
            udp=ECHO, full=ECHO, passed=9000, ports={1: REFUSED}, tcp={17700: ECHO, 1: REFUSED}
        )
    )
    swept: Sweep = field(default_factory=Sweep)
    probed: list[tuple[str, str, int, int, tuple[int, ...]]] = field(default_factory=list)

    def use_page(self, size: int) -> str:
        assert size in {GIB, 2 * MIB}
        return self.page

    def load(self, path: str, symbols: tuple[str, ...]) -> str:
        assert symbols == ("ncclNetPlugin_v12",)
        assert path
        return self.loading

    def clock(self) -> ClockState:
        return self.state_of_clock

    def egress(self, source: str, target: str) -> str:
        own = {"10.0.1.11": "eth1", "10.0.2.12": "eth2"}
        return self.ways.get((source, target), own.get(source, "eth0"))

    def resolve(self, name: str) -> tuple[tuple[str, ...], str]:
        return ((), "Name or service not known") if name.endswith(".invalid") else ((name,), "")

    def probe_path(self, source: str, peer: str, port: int, mtu: int, ports: Sequence[int]) -> ProbeResult:
        self.probed.append((source, peer, port, mtu, tuple(ports)))
        return self.reached

    def sweep_ports(self, source: str, peer: str, port: int, ports: tuple[int, int], within_s: float) -> Sweep:
        assert (source, peer, port) in {probe[:3] for probe in self.probed}
        assert ports == (32768, 60999)
        assert within_s > 0
        return self.swept


class FakeRunner:
    """Runs nothing; answers by the first words of a command."""

    runs = True

    def __init__(self, answers: dict[str, str] | None = None) -> None:
        self.answers = answers or {}
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], timeout_s: float = 1.0) -> Completed:
        del timeout_s
        self.ran.append(tuple(argv))
        line = " ".join(argv)
        found = next((output for begin, output in self.answers.items() if line.startswith(begin)), None)
        return Completed(tuple(argv), 1 if found is None else 0, found or "")


def _make_eni(number: int) -> Eni:
    return Eni(
        name=f"eth{number}",
        index=number + 2,
        mac=f"52:54:00:00:00:0{number}",
        driver="virtio_net",
        addresses=(f"10.0.{number}.1{number}/24",),
        gateway=f"10.0.{number}.1",
        is_default_route=number == 0,
        is_up=True,
        has_link=True,
        mtu=9000,
        mtu_max=9500,
        queues=8,
        queues_max=8,
        speed_mbps=50000,
        pci=f"0000:0{number}:00.0",
        node=max(number - 1, 0),
        gso_max_size=131072,
        gro_max_size=131072,
        gso_ipv4_max_size=131072,
        gro_ipv4_max_size=131072,
        tso_max_size=524280,
    )


def _make_plan(number: int) -> EniPlan:
    eni = _make_eni(number)
    return EniPlan(
        number=number - 1,
        name=eni.name,
        mac=eni.mac,
        address=eni.addresses[0],
        gateway=eni.gateway,
        mtu=eni.mtu,
    )


RULES = "7700:\tfrom 10.0.1.11 lookup 7700\n7701:\tfrom 10.0.2.12 lookup 7701\n"
STATE = {  # what the kernel has of the record
    "ip -4 rule show": RULES,
    "ip -4 route show table all": "".join(
        f"10.0.{number}.0/24 dev eth{number} table {7699 + number} scope link\n"
        f"default via 10.0.{number}.1 dev eth{number} table {7699 + number} onlink\n"
        for number in (1, 2)
    ),
}


class World:
    """The parts of a context, each of which a test may spoil before it makes the context."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment: dict[str, str] = {}
        self.options = DoctorOptions()
        self.machine: FakeMachine | None = FakeMachine()
        self.copies: tuple[Copy, ...] = (make_copy(),)
        self.taken: tuple[Taken, ...] = ()
        self.runner = FakeRunner(dict(STATE))
        self.confs = {n: self._make_conf(n) for n in (1, 2)}
        self.facts = self._make_facts()
        for folder in ("dev/hugepages", "sys/bus/pci/devices", "usr/local/tfabric/tools/config"):
            (root / folder).mkdir(parents=True)
        self.write("/usr/lib/systemd/system/dev-hugepages.mount", "[Mount]\n")
        self.write("/etc/systemd/system/harp.service", "[Unit]\n")
        self.write(RECORD, encode_record(Interfaces(enis=tuple(map(_make_plan, (1, 2))))).decode())
        self.write(LIBRARY, "\x7fELF")
        (root / "etc/systemd/system/multi-user.target.wants").mkdir()
        wanted = root / "etc/systemd/system/multi-user.target.wants/harp.service"
        wanted.symlink_to("/etc/systemd/system/harp.service")
        for name in ("all", "eth0", "eth1", "eth2"):
            for setting, value in {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}.items():
                self.write(f"/proc/sys/net/ipv4/conf/{name}/{setting}", f"{value}\n")
        for name in ("rmem_max", "wmem_max"):
            self.write(f"/proc/sys/net/core/{name}", "212992\n")
        for name in ("tcp_rmem", "tcp_wmem"):
            self.write(f"/proc/sys/net/ipv4/{name}", "4096\t131072\t6291456\n")

    @staticmethod
    def _make_conf(number: int) -> Conf:
        eni = _make_eni(number)
        return Conf(
            interface=eni.name,
            mac=eni.mac,
            address=eni.addresses[0].partition("/")[0],
            gateway=eni.gateway,
            mtu=9000,
            pci=eni.pci,
            numa=eni.node,
            speed_mbps=50000,
            queues=8,
            cores=(number * 4 - 4, number * 4 - 3),
            gpu=number - 1,
            page_size="1G",
        )

    @staticmethod
    def _make_facts() -> Facts:
        pages = Pages(size=GIB, total=10, free=10)
        return Facts(
            system=System(
                id="ubuntu",
                family="debian",
                kernel="5.15.0-91-generic",
                arch="x86_64",
                init="systemd",
                is_root=True,
            ),
            boot=Boot(
                loader="grub",
                cmdline=f"BOOT_IMAGE=/vmlinuz root=/dev/vda1 {ARGS}",
                entries=(BootEntry(title="Ubuntu", source="/boot/grub/grub.cfg", args=f"root=/dev/vda1 {ARGS}"),),
            ),
            memory=Memory(
                total=64 * GIB,
                available=40 * GIB,
                has_1g=True,
                default_page=GIB,
                hugepages=(Pages(size=GIB, total=20, free=20),),
                nodes=tuple(
                    Node(
                        id=n,
                        memory=32 * GIB,
                        free=20 * GIB,
                        cpus=tuple(range(n * 4, n * 4 + 4)),
                        hugepages=(pages,),
                    )
                    for n in (0, 1)
                ),
                mounts=(HugeMount(path="/dev/hugepages", page_size=GIB, options="rw,pagesize=1024M"),),
            ),
            cpus=tuple(Cpu(id=n, node=n // 4, core=(n,)) for n in range(8)),
            gpus=tuple(Gpu(index=n, pci=f"0000:1{n}:00.0", vendor="10de", device="20b0", node=n) for n in (0, 1)),
            enis=tuple(map(_make_eni, (0, 1, 2))),
            limits=Limits(memlock=-1, nofile=65536, capabilities=CAPABILITIES),
            libraries=(Library(path="/usr/lib/x86_64-linux-gnu/libnccl.so.2", version="2.21.5"),),
        )

    # ---- spoiling ----

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self, path: str) -> None:
        (self.root / path.lstrip("/")).unlink()

    def conf(self, number: int, **changes: Any) -> None:
        conf = self.confs[number]
        self.confs[number] = conf_of({key: conf.get(key) for key in KEYS} | changes)

    def change_eni(self, name: str, **changes: Any) -> None:
        enis = tuple(replace(eni, **changes) if eni.name == name else eni for eni in self.facts.enis)
        self.facts = replace(self.facts, enis=enis)

    def change(self, part: str, **changes: Any) -> None:
        """Change fields of facts.system, .memory, .boot, .limits."""
        self.facts = replace(self.facts, **{part: replace(getattr(self.facts, part), **changes)})

    def as_tree(self) -> None:
        """Make it a directory tree that does not run."""
        self.machine = None

    def in_container(self) -> None:
        self.change("system", container="docker")

    # ---- looking ----

    def context(self) -> Context:
        for number, conf in self.confs.items():
            if not (self.root / conf_path(number).lstrip("/")).exists():
                self.write(conf_path(number), render_conf(conf))
        host = Host(self.root, self.runner) if self.machine is not None else Host(self.root)
        context = Context(host, self.facts, self.options, self.environment, self.machine)
        context.copies = self.copies
        context.taken = self.taken
        context.platform = Platform(machine="x86_64", glibc="2.31")
        return context

    def findings(self, id_: str | None = None) -> list[Finding]:
        return [finding for finding in run_checks(self.context()) if id_ in {None, finding.id}]
