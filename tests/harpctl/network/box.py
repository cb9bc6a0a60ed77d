# SPDX-License-Identifier: Apache-2.0
"""A box: a network and mount namespace of its own with eth0, eth1 and eth2, and the net they are wired to.

    box                                net (a second namespace)
    eth0 10.0.9.10/24, default route   br0 10.0.9.1/24
    eth1, eth2 bare                    br1 10.0.1.1/24
                                       lo  192.0.2.1, which is far from all of them

Started by test_box.py below `unshare --net --pid ...`: whatever a case does and starts is gone when its
process ends. Files are a tree below FOLDER, commands run for real.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harpctl import boot
from harpctl.change import rollback, store
from harpctl.change.apply import apply_plan
from harpctl.change.diff import render_diff
from harpctl.change.journal import Journal
from harpctl.change.steps import AnyStep, Group, Plan, Run, WriteFile
from harpctl.confs.conf import conf_path
from harpctl.console import NoProgress
from harpctl.doctor.context import Context
from harpctl.doctor.enis import check_state
from harpctl.doctor.machine import Machine
from harpctl.errors import HarpError
from harpctl.facts.collect import collect_facts
from harpctl.facts.eni import collect_enis
from harpctl.facts.model import Facts, Overrides
from harpctl.facts.sources import RECORD, collect_sources
from harpctl.host.host import Host
from harpctl.host.link_sizes import KernelLinks
from harpctl.host.runner import TIMEOUT_S, Completed, LiveRunner
from harpctl.network import big_tcp, guard_files, reachability, runtime
from harpctl.network.command import confirm_all
from harpctl.network.guard import Guard
from harpctl.network.model import EniPlan, Interfaces, encode_record
from harpctl.network.plan import NAME as NETWORK
from harpctl.network.plan import plan_network
from harpctl.setup.command import plan_setup
from harpctl.setup.options import SetupOptions
from harpctl.units import MIB
from tests.harpctl.machine import build_machine
from tests.harpctl.network.example import make_facts, write_file

WIRES = {"eth0": "br0", "eth1": "br1", "eth2": "br1"}
FAR = "192.0.2.1"
DEADLINE_S = 3.0
PATIENCE_S = 30.0

CASES: dict[str, Callable[[Host], None]] = {}


def case(function: Callable[[Host], None]) -> Callable[[Host], None]:
    CASES[function.__name__] = function
    return function


def run_line(line: str) -> str:
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def await_that(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.02)


# ---- the namespaces ----


def wire_network() -> None:
    run_line("mount --make-rprivate /")
    run_line("mount -t tmpfs none /run")
    run_line("ip netns add net")
    for namespace in ("", "ip netns exec net "):
        for setting in ("accept_ra", "accept_dad", "dad_transmits"):
            run_line(f"{namespace}sysctl -q -w net.ipv6.conf.default.{setting}=0")
        run_line(f"{namespace}ip link set lo up")
    for number, bridge in enumerate(("br0", "br1")):
        run_line(f"ip -n net link add {bridge} type bridge mcast_snooping 0")
        run_line(f"ip -n net addr add 10.0.{9 if number == 0 else 1}.1/24 dev {bridge}")
        run_line(f"ip -n net addr add fd00:{9 if number == 0 else 1}::1/64 dev {bridge} nodad")
        run_line(f"ip -n net link set {bridge} up")
    run_line(f"ip -n net addr add {FAR}/32 dev lo")
    for name, bridge in WIRES.items():
        run_line(f"ip link add {name} type veth peer name to-{name} netns net")
        run_line(f"ip -n net link set to-{name} master {bridge} up")
    run_line("ip addr add 10.0.9.10/24 dev eth0")
    run_line("ip link set eth0 up")
    run_line("ip route add default via 10.0.9.1")


def share_subnet() -> None:
    """Move eth0 onto the bridge of the other two, its route as DHCP makes it."""
    run_line("ip -n net link set to-eth0 master br1")
    run_line("ip addr flush dev eth0")
    run_line("ip addr add 10.0.1.10/24 dev eth0 noprefixroute")
    run_line("ip route add 10.0.1.0/24 dev eth0 src 10.0.1.10 metric 100")
    run_line("ip route add default via 10.0.1.1 metric 100")


def make_tree(folder: Path) -> Host:
    build_machine(folder, "debian-12", "gpu2")
    run_line(f"mount --bind /proc {folder}/proc")
    return Host(folder, LiveRunner())


def look_at_enis() -> Facts:
    enis, _foreign = collect_enis(Host(), Overrides(), "", [])
    return msgspec.structs.replace(make_facts(), enis=enis)


def network_state() -> dict[str, Any]:
    """Return addresses, routes and rules as ip reports them, without what goes on counting."""
    found: dict[str, Any] = {}
    for version in ("-4", "-6"):
        for what in ("addr show", "route show table all", "rule show"):
            found[f"{version} {what}"] = json.loads(run_line(f"ip {version} -j {what}") or "[]")
    settings = ("arp_ignore", "arp_announce", "rp_filter")
    for name in WIRES:
        found[name] = [Path(f"/proc/sys/net/ipv4/conf/{name}/{key}").read_text() for key in settings]
    return found


def assert_same(before: dict[str, Any]) -> None:
    after = network_state()
    changed = [f"{key}:\n  {before[key]}\n  {after[key]}" for key in before if before[key] != after[key]]
    assert not changed, "\n".join(changed)


def mac_of(name: str) -> str:
    links = json.loads(run_line(f"ip -j link show dev {name}"))
    return str(links[0]["address"])


def make_plans() -> list[EniPlan]:
    given: dict[str, Any] = {"gateway": "10.0.1.1"}
    return [
        EniPlan(number=0, name="eth1", mac=mac_of("eth1"), address="10.0.1.11/24", mtu=1400, **given),
        EniPlan(number=1, name="eth2", mac=mac_of("eth2"), address="10.0.1.12/24", **given),
    ]


def set_up(host: Host, wanted: Sequence[EniPlan] | None = None) -> str:
    enis = tuple(make_plans() if wanted is None else wanted)
    found = look_at_enis()
    sources = collect_sources(host, found.enis, program="harpctl")
    plan = Plan(groups=tuple(plan_network(found, sources, Interfaces(enis=enis))))
    return apply_plan(plan, host, what="setup", progress=NoProgress(), guard=Guard())


def lacking_steps() -> list[AnyStep]:
    """Return what the ENIs lack of their plans."""
    found = look_at_enis()
    return runtime.plan_state(found, collect_sources(Host(), found.enis), make_plans())


def imitate_reboot() -> None:
    """Leave of the ENIs what a reboot leaves."""
    for name in ("eth1", "eth2"):
        run_line(f"ip addr flush dev {name}")
        run_line(f"ip link set {name} down")
        run_line(f"ip link set {name} mtu 1500")
        for setting in runtime.ARP:
            run_line(f"sysctl -q -w net.ipv4.conf.{name}.{setting}=0")
    for number in (0, 1):
        subprocess.run(["ip", "rule", "del", "pref", f"{7700 + number}"], capture_output=True, check=False)
    assert lacking_steps()


# ---- traffic ----


def sent_packets(name: str) -> int:
    return int(Path("/proc/self/net/dev").read_text().split(f"{name}:")[1].split()[9])


def leaves_by(source: str, target: str) -> str:
    """Return the interface that carries what is sent from one address to another."""
    before = {name: sent_packets(name) for name in WIRES}
    run_line(f"ping -n -q -c 20 -i 0.01 -W 2 -I {source} {target}")
    more = {name: sent_packets(name) - before[name] for name in WIRES}
    assert sorted(more.values())[-2] < 20 <= max(more.values()), more
    return max(more, key=lambda name: more[name])


ARP_PROBE = """
import sys
from scapy.all import ARP, Ether, conf, srp
conf.verb = 0
request = Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=sys.argv[1])
answers, _rest = srp(request, iface="br1", timeout=1, multi=True)
print(*sorted({answer[ARP].hwsrc for _request, answer in answers}))
"""


def answers_for(address: str) -> list[str]:
    """Return the names of the interfaces that answer ARP for an address."""
    command = ["ip", "netns", "exec", "net", sys.executable, "-c", ARP_PROBE, address]
    macs = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    owner = {link["address"]: link["ifname"] for link in json.loads(run_line("ip -j link show"))}
    return sorted(owner[mac] for mac in macs)


# ---- policy routing ----


@case
def each_address_by_its_own_eni(host: Host) -> None:
    before = network_state()
    set_up(host)
    after = network_state()
    for source, name in (("10.0.1.11", "eth1"), ("10.0.1.12", "eth2"), ("10.0.9.10", "eth0")):
        for target in ("10.0.1.1", FAR):
            assert leaves_by(source, target) == name, (source, target)
    assert answers_for("10.0.1.11") == ["eth1"]
    assert answers_for("10.0.1.12") == ["eth2"]
    for name in ("eth1", "eth2"):
        run_line(f"sysctl -q -w net.ipv4.conf.{name}.arp_ignore=0")
    assert answers_for("10.0.1.11") == ["eth1", "eth2"], "without the settings both answer"
    for name in ("eth1", "eth2"):
        run_line(f"sysctl -q -w net.ipv4.conf.{name}.arp_ignore=1")
    assert set_up(host) == "", "a second setup has nothing to do"
    assert_same(after)
    report = rollback.roll_back(host, progress=NoProgress())
    assert not report.kept, report.kept
    assert_same(before)


@case
def the_primary_keeps_a_subnet_that_it_shares(host: Host) -> None:
    share_subnet()
    before = network_state()
    set_up(host)
    assert "dev eth0 " in run_line("ip route get 10.0.1.1")
    for source, name in (("10.0.1.10", "eth0"), ("10.0.1.11", "eth1"), ("10.0.1.12", "eth2")):
        assert leaves_by(source, FAR) == name
        assert leaves_by(source, "10.0.1.1") == name
    run_line("ip route add 10.0.1.0/24 dev eth1 src 10.0.1.11")
    assert "dev eth1 " in run_line("ip route get 10.0.1.1"), "as some network-scripts make it"
    set_up(host)
    assert "dev eth0 " in run_line("ip route get 10.0.1.1")
    assert set_up(host) == ""
    run_line("ip route add 10.0.1.0/24 dev eth1 src 10.0.1.11")
    run_line("ip route del 10.0.1.0/24 dev eth1")
    rollback.roll_back(host, progress=NoProgress())
    run_line("ip route flush exact 10.0.1.0/24 dev eth1 table main")
    assert_same(before)


@case
def ipv6(host: Host) -> None:
    before = network_state()
    plan = [EniPlan(number=3, name="eth2", address="fd00:1::12/64", gateway="fd00:1::1")]
    set_up(host, plan)
    assert leaves_by("fd00:1::12", "fd00:1::1") == "eth2"
    assert leaves_by("fd00:1::12", "fd00:9::1") == "eth2"
    (again,) = plan_network(
        look_at_enis(), collect_sources(host, look_at_enis().enis), Interfaces(enis=tuple(plan))
    )
    assert not again.guarded, again
    rollback.roll_back(host, progress=NoProgress())
    assert_same(before)


# ---- NetworkManager; the others are in reboot.py ----

NETWORKMANAGER = ("NetworkManager", "--no-daemon")
OTHER = "10.0.1.99/24"  # what its own profile gives eth1


@contextlib.contextmanager
def run_beside(*argv: str) -> Iterator[None]:
    with Path("/dev/null").open("w") as null:
        daemon = subprocess.Popen(argv, stdout=null, stderr=null)
    try:
        yield
    finally:
        daemon.terminate()
        daemon.wait()


@contextlib.contextmanager
def run_boot(host: Host) -> Iterator[None]:
    """Run what harp.service runs."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            boot._gather_facts = lambda host, names: look_at_enis()  # noqa: ARG005
            boot.keep_enis(host)
        os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def mirror_folders(host: Host, *folders: str) -> None:
    """Have the real programs read folders of the tree."""
    for folder in folders:
        host.real(folder).mkdir(parents=True, exist_ok=True)
        Path(folder).mkdir(parents=True, exist_ok=True)
        run_line(f"mount --bind {host.real(folder)} {folder}")


def has_address(name: str, address: str) -> bool:
    return f" {address} " in run_line(f"ip addr show dev {name}")


def assert_is_left_alone() -> None:
    assert lacking_steps() == []
    assert not has_address("eth1", OTHER)
    assert has_address("eth0", "10.0.9.10/24")


PROFILE = """\
[connection]
id=cloud-init {name}
uuid={uuid}
type=ethernet
interface-name={name}
autoconnect-priority=999
[ipv4]
method=manual
address1={address}
[ipv6]
method=disabled
"""


class StartsNetworkManager(LiveRunner):
    """Starts NetworkManager just before the first command that talks to it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._is_running = False

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        if "nmcli" in " ".join(argv) and not self._is_running:
            self._stack.enter_context(run_beside(*NETWORKMANAGER))
            self._is_running = True
        return super().run(argv, timeout_s)


@case
def networkmanager_at_boot(host: Host) -> None:
    """NetworkManager's profile of eth1 has the highest priority that there is."""
    write_file(host.root, "/usr/sbin/NetworkManager", mode=0o755)
    text = "[main]\nplugins=keyfile\ndns=none\nrc-manager=unmanaged\n"
    write_file(host.root, "/etc/NetworkManager/NetworkManager.conf", text)
    write_file(host.root, "/etc/NetworkManager/conf.d/10-others.conf", "[keyfile]\nunmanaged-devices=mac:02::9\n")
    for number, (name, address) in enumerate((("eth0", "10.0.9.10/24"), ("eth1", OTHER))):
        text = PROFILE.format(name=name, address=address, uuid=f"00000000-0000-4000-8000-00000000000{number}")
        write_file(
            host.root, f"/etc/NetworkManager/system-connections/cloud-init-{name}.nmconnection", text, 0o600
        )
    mirror_folders(host, "/etc/NetworkManager", "/var/lib/NetworkManager")
    Path("/run/dbus").mkdir()
    run_line("mount -t sysfs -o ro none /sys")  # NetworkManager waits for no udev then
    for name in ("eth1", "eth2"):
        kind = f"/sys/class/net/{name}/addr_assign_type"
        write_file(host.root, kind, Path(kind).read_text())
    with run_beside("dbus-daemon", "--system", "--nofork", "--nopidfile"):
        with run_beside(*NETWORKMANAGER):
            await_that(lambda: has_address("eth1", OTHER), "NetworkManager has set eth1 up by its own profile")
            before = run_line("ip -4 addr show dev eth1")
            set_up(host)
            assert lacking_steps() == []
            rollback.roll_back(host, progress=NoProgress())
            await_that(lambda: run_line("ip -4 addr show dev eth1") == before, "NetworkManager has eth1 again")
            set_up(host)
        with contextlib.ExitStack() as stack:  # restarted, it has read what setup wrote
            starting = Host(host.root, StartsNetworkManager(stack))
            report = rollback.roll_back(starting, progress=NoProgress())
            assert not report.kept, report.kept
            await_that(lambda: run_line("ip -4 addr show dev eth1") == before, "NetworkManager has eth1 again")
            set_up(host)
            assert lacking_steps() == []
        imitate_reboot()
        run_line("ip addr flush dev eth0")
        run_line("rm -r /run/NetworkManager")
        with run_beside(*NETWORKMANAGER), run_boot(host):
            await_that(lambda: has_address("eth0", "10.0.9.10/24"), "NetworkManager has set eth0 up")
            await_that(lambda: not lacking_steps(), "harp.service has set the ENIs up")
            assert_is_left_alone()


# ---- what is taken away ----


@case
def what_is_taken_away_comes_back(host: Host) -> None:
    set_up(host)
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.bind("/run/notify")
    ready.settimeout(PATIENCE_S)
    os.environ["NOTIFY_SOCKET"] = "/run/notify"
    imitate_reboot()
    with run_boot(host):
        assert ready.recv(64) == b"READY=1"
        assert lacking_steps() == []
        for line in (
            "ip addr flush dev eth1",
            "ip rule del pref 7701",
            "ip route flush table 7700",
            "ip link set eth1 mtu 1500",
            "ip link set eth2 down",
            "ip addr change 10.0.1.11/24 dev eth1 valid_lft 600 preferred_lft 600",
        ):
            run_line(line)
            await_that(lambda: not lacking_steps(), f"it is as before: {line}")
        mac = mac_of("eth2")
        run_line("ip link del eth2")
        run_line(f"ip link add eth2 address {mac} type veth peer name to-eth2 netns net")
        run_line("ip -n net link set to-eth2 master br1 up")
        await_that(lambda: not lacking_steps(), "the interface that came again is set up")
        with store.hold_lock(host):
            run_line("ip rule del pref 7701")
            run_line("ip rule add pref 7702 from 10.9.9.9 lookup 7702")
            assert lacking_steps()
        await_that(lambda: not lacking_steps(), "it is as before once the other harpctl has ended")


@case
def what_the_kernel_does_not_report_comes_back(host: Host) -> None:
    set_up(host)
    boot.LOOK_S = 0.5
    with run_boot(host):
        for setting in runtime.ARP:
            run_line(f"sysctl -q -w net.ipv4.conf.eth1.{setting}=0")
            await_that(lambda: not lacking_steps(), f"{setting} is as before")


@case
def an_interface_that_comes_late(host: Host) -> None:
    enis = make_plans()
    write_file(host.root, RECORD, encode_record(Interfaces(enis=tuple(enis))).decode())
    run_line("ip link del eth2")
    with run_boot(host):
        await_that(lambda: has_address("eth1", "10.0.1.11/24"), "the other one is set up")
        run_line(f"ip link add eth2 address {enis[1].mac} type veth peer name to-eth2 netns net")
        await_that(lambda: has_address("eth2", "10.0.1.12/24"), "it is set up when it is there")


class CountingRunner(LiveRunner):
    """Counts commands."""

    count = 0

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        self.count += 1
        return super().run(argv, timeout_s)


class CountingHost(Host):
    """Counts looks at files."""

    count = 0

    def real(self, path: str, *, follow: bool = True) -> Path:
        self.count += 1
        return super().real(path, follow=follow)


@case
def boot_looks_at_its_own_interfaces_only(host: Host) -> None:
    """harp.service does this at each change of them: its cost is bounded, whatever else the host has."""
    run_line("mount -t sysfs -o ro none /sys")
    record = make_plans()
    set_up(host, record)
    gather = boot._gather_facts

    def cost() -> tuple[int, int]:
        runner, machine = CountingRunner(), CountingHost()
        counted = CountingHost(host.root, runner)
        boot._gather_facts = lambda host, names: gather(machine, names)  # noqa: ARG005
        assert boot.run_boot(counted).steps == ()
        return runner.count, machine.count + counted.count

    alone = cost()
    for number in range(20):
        run_line(f"ip link add others{number} address 02:00:00:00:01:{number:02x} type bridge")
        run_line(f"ip addr add 10.9.{number}.1/24 dev others{number}")
    assert cost() == alone
    assert alone[0] <= 4, "commands"
    assert alone[1] <= 25 * (len(record) + 1), "looks at files"


# ---- alternative names ----

SHORT, LONG = "enp7s0", "enp7s0np0-of-the-second-card"  # a conf file takes names of up to 15 bytes


@case
def an_alternative_name_is_the_same_interface(host: Host) -> None:
    run_line(f"ip link property add dev eth1 altname {SHORT} altname {LONG}")
    before = network_state()
    overrides = Overrides(addresses={LONG: "10.0.1.11/24"}, gateways={SHORT: "10.0.1.1"})
    options = SetupOptions(
        kernel_args=False, page_size=2 * MIB, hugepages=1, enis=(SHORT,), big_tcp=False, overrides=overrides
    )

    def known() -> Facts:
        return msgspec.structs.replace(collect_facts(host), enis=look_at_enis().enis)

    def plan() -> Plan:
        made = plan_setup(host, options, known()).plan
        groups = (group for group in made.groups if group.name in {NETWORK, "configuration files"})
        return msgspec.structs.replace(made, groups=tuple(groups))

    def replace_text(path: str, old: str, new: str) -> None:
        text = host.read_text(path) or ""
        assert old in text, f"{path} has the kernel's name: {text}"
        write_file(host.root, path, text.replace(old, new))

    assert apply_plan(plan(), host, what="setup", progress=NoProgress(), guard=Guard())
    right = network_state()
    assert plan().is_empty, "setup writes the kernel's name"
    replace_text(RECORD, '"eth1"', f'"{LONG}"')
    replace_text(conf_path(0), "interface = eth1\n", f"interface = {SHORT}\n")
    replace_text(conf_path(0), f"interface = {SHORT}\n", f"interface = {SHORT}\nqueues = 3\n")
    context = Context(host, known(), environment={"HARP_IFNAME": f"={SHORT}"}, machine=Machine())
    assert [eni.name for eni in context.enis] == ["eth1"], "of the variable"
    context = Context(host, known(), machine=Machine())
    assert [eni.name for eni in context.enis] == ["eth1"], "of the conf file"
    assert list(check_state(context)) == []
    boot._gather_facts = lambda host, names: look_at_enis()  # noqa: ARG005
    assert boot.run_boot(host).steps == ()
    run_line("ip -4 addr flush dev eth1")
    run_line("ip rule del pref 7700")
    run_line("sysctl -q -w net.ipv4.conf.eth1.arp_ignore=0")
    assert len(list(check_state(Context(host, known(), machine=Machine())))) == 1
    with run_boot(host):
        await_that(lambda: network_state() == right, "all is as the record has it")
        run_line("ip link set eth1 mtu 1400")
        await_that(lambda: network_state() == right, "a change of the interface is seen by the record's name")
    assert apply_plan(plan(), host, what="setup", progress=NoProgress(), guard=Guard())
    assert LONG not in (host.read_text(RECORD) or "")
    conf = host.read_text(conf_path(0)) or ""
    assert "interface = eth1\n" in conf
    assert "queues = 3\n" in conf, "the tuning is kept"
    report = rollback.roll_back(host, force=True, progress=NoProgress())  # two files were edited
    assert not report.kept, report.kept
    assert_same(before)


# ---- BIG TCP ----


def read_sizes() -> dict[str, list[int | None]]:
    """Return the sizes as ip shows them; those of IPv4 where it knows them."""
    found = {}
    for link in json.loads(run_line("ip -d -j link show type veth")):
        found[link["ifname"]] = [link.get(f"g{x}o{v}_max_size") for v in ("", "_ipv4") for x in ("s", "r")]
    return found


def plan_big_tcp_setup(host: Host, **options: Any) -> Plan:
    """Plan a setup and return its part about BIG TCP alone, so that the rest of this machine stays as it is."""
    known = msgspec.structs.replace(collect_facts(host), enis=look_at_enis().enis)
    wanted = {"kernel_args": False, "network": False, "big_tcp": True, "enis": ("eth1", "eth2"), **options}
    plan = plan_setup(host, SetupOptions(page_size=2 * MIB, hugepages=1, **wanted), known).plan
    groups = tuple(group for group in plan.groups if group.name == big_tcp.NAME)
    return msgspec.structs.replace(plan, groups=groups)


@case
def big_tcp_is_set_and_set_back(host: Host) -> None:
    for version in (4, 6):
        for name in ("all", "eth1", "eth2"):
            run_line(f"sysctl -q -w net.ipv{version}.conf.{name}.forwarding=0")
    run_line("ip link set eth2 gro_max_size 200000")
    before = read_sizes()
    links = KernelLinks()
    known = {name: links.sizes(name) for name in WIRES}
    has_ipv4 = "gso_ipv4_max_size" in known["eth1"]
    plan = plan_big_tcp_setup(host)
    assert "of eth1\n" in render_diff(plan, host)
    assert known == {name: links.sizes(name) for name in WIRES}, "a plan changes nothing"
    assert apply_plan(plan, host, what="setup", progress=NoProgress())
    assert read_sizes()["eth1"][:2] == [131072, 131072]
    assert read_sizes()["eth2"][:2] == [131072, 200000]
    assert read_sizes()["eth0"] == before["eth0"]
    for name in ("eth1", "eth2"):
        ipv4 = [links.sizes(name).get(size) for size in ("gso_ipv4_max_size", "gro_ipv4_max_size")]
        assert ipv4 == ([131072, 131072] if has_ipv4 else [None, None])
    assert plan_big_tcp_setup(host).is_empty
    report = rollback.roll_back(host, progress=NoProgress())
    assert not report.kept, report.kept
    assert read_sizes() == before
    assert known == {name: links.sizes(name) for name in WIRES}


@case
def big_tcp_is_left_alone_where_it_may_harm(host: Host) -> None:
    run_line("sysctl -q -w net.ipv4.conf.eth1.forwarding=1")
    run_line("ip link add br9 type bridge")
    run_line("ip link set eth2 master br9")
    before = read_sizes()
    plan = plan_big_tcp_setup(host)
    assert "No BIG TCP for eth2: it is a port of a bridge, a bond or Open vSwitch." in plan.notes
    assert "No BIG TCP for what eth1 receives: the host forwards packets from it." in plan.notes
    assert apply_plan(plan, host, what="setup", progress=NoProgress())
    assert read_sizes()["eth2"] == before["eth2"]
    assert read_sizes()["eth1"][:2] == [131072, before["eth1"][1]], "what is forwarded stays"
    rollback.roll_back(host, progress=NoProgress())
    assert read_sizes() == before


@case
def big_tcp_is_set_unless_it_is_left_out(host: Host) -> None:
    address = Overrides(addresses={"eth1": "10.0.1.11/24"})
    usual: dict[str, Any] = {"network": True, "enis": ("eth1",), "overrides": address, "big_tcp": None}
    assert not plan_big_tcp_setup(host, **usual).is_empty
    assert plan_big_tcp_setup(host, **{**usual, "big_tcp": False}).is_empty
    write_file(host.root, RECORD, encode_record(Interfaces(big_tcp=False)).decode())
    assert plan_big_tcp_setup(host, **usual).is_empty, "as an earlier setup chose"
    assert not plan_big_tcp_setup(host, **{**usual, "big_tcp": True}).is_empty
    (host.root / RECORD[1:]).unlink()
    assert plan_big_tcp_setup(host, **{**usual, "network": False}).is_empty


@case
def sizes_that_the_kernel_refuses(host: Host) -> None:
    del host
    links = KernelLinks()
    with pytest.raises(OSError, match="Invalid argument"):
        links.set_sizes("eth1", {"gso_max_size": 1 << 20})
    with pytest.raises(OSError, match="No such device"):
        links.set_sizes("eth9", {"gso_max_size": 65536})
    assert links.sizes("eth9") == {}


# ---- the rollback timer ----

LOSE = ("ip", "addr", "del", "10.0.9.10/24", "dev", "eth0")
FILE = "/etc/harp-test"


def losing_plan(*more: AnyStep) -> Plan:
    """Return a plan that cuts the host off from its gateway."""
    undo = ("sh", "-c", "ip addr add 10.0.9.10/24 dev eth0; ip route add default via 10.0.9.1")
    steps = (WriteFile(path=FILE, data=b"new"), Run(argv=LOSE, undo=undo, always=True), *more)
    return Plan(groups=(Group(name="network", steps=steps, guarded=True),))


def harmless_plan(*more: AnyStep) -> Plan:
    steps = (WriteFile(path=FILE, data=b"new"), *more)
    return Plan(groups=(Group(name="network", steps=steps, guarded=True),))


SLEEP = Run(argv=("sleep", "600"), timeout_s=900, always=True)


def is_cut_off() -> bool:
    return "10.0.9.10" not in run_line("ip addr show dev eth0")


class LineProgress(NoProgress):
    """Progress that does something when the guard reports that the host is cut off."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then
        self.lines: list[str] = []

    def print(self, line: str) -> None:
        self.lines.append(line)
        if "harpctl confirm" in line:
            self.then()


@contextlib.contextmanager
def other_harpctl(host: Host, plan: Plan, deadline_s: float = DEADLINE_S, grace_s: float = 60.0) -> Iterator[int]:
    """Apply a plan in a process of its own, which a case may kill."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            guard = Guard(deadline_s, grace_s)
            apply_plan(plan, host, what="setup", progress=NoProgress(), guard=guard)
        os._exit(0)
    yield pid
    os.waitpid(pid, 0)


def nothing_is_left(host: Host) -> bool:
    return not host.exists(guard_files.FOLDER)


@case
def nobody_confirms(host: Host) -> None:
    before, progress = network_state(), LineProgress(lambda: None)
    begin = time.monotonic()
    with pytest.raises(HarpError, match="nobody confirmed"):
        apply_plan(losing_plan(), host, what="setup", progress=progress, guard=Guard(DEADLINE_S))
    assert time.monotonic() - begin >= DEADLINE_S
    assert "10.0.9.1 can't be reached" in progress.lines[0]
    assert_same(before)
    assert not host.exists(FILE)
    assert nothing_is_left(host)


@case
def somebody_confirms(host: Host) -> None:
    progress = LineProgress(lambda: confirm_all(host))
    apply_plan(losing_plan(), host, what="setup", progress=progress, guard=Guard(DEADLINE_S))
    assert is_cut_off()
    assert host.read_text(FILE) == "new"
    assert nothing_is_left(host)


@case
def it_can_be_reached(host: Host) -> None:
    begin = time.monotonic()
    apply_plan(harmless_plan(), host, what="setup", progress=NoProgress(), guard=Guard())
    assert time.monotonic() - begin < 30
    assert host.read_text(FILE) == "new"
    assert nothing_is_left(host)


@case
def it_comes_back_in_time(host: Host) -> None:
    def mend() -> None:
        run_line("ip addr add 10.0.9.10/24 dev eth0")
        run_line("ip route add default via 10.0.9.1")

    apply_plan(losing_plan(), host, what="setup", progress=LineProgress(mend), guard=Guard(30))
    assert host.read_text(FILE) == "new"


@case
def harpctl_is_killed_while_cut_off(host: Host) -> None:
    before = network_state()
    with other_harpctl(host, losing_plan(SLEEP)) as pid:
        await_that(is_cut_off, "the host is cut off")
        os.kill(pid, signal.SIGKILL)
    await_that(lambda: network_state() == before, "the rollback timer has taken it back")
    await_that(lambda: nothing_is_left(host), "the rollback timer is gone")
    assert not host.exists(FILE)
    assert not Journal(host).transactions()


@case
def harpctl_is_killed_and_somebody_confirms(host: Host) -> None:
    with other_harpctl(host, losing_plan(SLEEP), deadline_s=8) as pid:
        await_that(is_cut_off, "the host is cut off")
        os.kill(pid, signal.SIGKILL)
    confirm_all(host)
    await_that(lambda: nothing_is_left(host), "the rollback timer is gone")
    assert is_cut_off()


@case
def harpctl_is_killed_and_all_is_well(host: Host) -> None:
    with other_harpctl(host, harmless_plan(SLEEP)) as pid:
        await_that(lambda: host.exists(FILE), "the guarded group has begun")
        os.kill(pid, signal.SIGKILL)
    await_that(lambda: nothing_is_left(host), "the rollback timer is gone")
    assert host.exists(FILE)
    assert any(transaction.is_open for transaction in Journal(host).transactions())


@case
def harpctl_hangs(host: Host) -> None:
    before = network_state()
    with other_harpctl(host, losing_plan(SLEEP), deadline_s=8, grace_s=0.5) as pid:
        await_that(is_cut_off, "the host is cut off")
        os.kill(pid, signal.SIGSTOP)
    await_that(lambda: network_state() == before, "the rollback timer has ended harpctl and taken it back")
    await_that(lambda: nothing_is_left(host), "the rollback timer is gone")
    assert not host.exists(FILE)


@case
def the_rollback_timer_gets_sigterm(host: Host) -> None:
    before = network_state()
    with other_harpctl(host, losing_plan(SLEEP), deadline_s=600) as pid:
        await_that(is_cut_off, "the host is cut off")
        (alive,) = host.glob(f"{guard_files.ALIVE}*")
        os.kill(host.read_int(alive), signal.SIGTERM)
        del pid
    await_that(lambda: nothing_is_left(host), "the rollback timer is gone")
    assert_same(before)


@case
def a_gateway_that_answers_arp_only(host: Host) -> None:
    run_line("ip netns exec net sysctl -q -w net.ipv4.icmp_echo_ignore_all=1")
    seen = reachability.find_reachable(host)
    assert [(target.address, target.seen_by) for target in seen.targets] == [("10.0.9.1", "neighbour")]
    assert not seen.list_lost(host)
    run_line("ip -n net link set to-eth0 down")
    assert seen.list_lost(host) == ("10.0.9.1",)


@case
def a_client_that_answers_nothing(host: Host) -> None:
    os.environ["SSH_CONNECTION"] = "198.51.100.7 50000 10.0.9.10 22"
    seen = reachability.find_reachable(host)
    assert [target.seen_by for target in seen.targets] == ["ping", "route"]
    assert not seen.list_lost(host)
    run_line("ip route add 198.51.100.0/24 via 10.0.9.2")
    assert seen.list_lost(host) == ("198.51.100.7",)


@case
def no_rollback_timer_no_change(host: Host) -> None:
    class NoGuard(Guard):
        def _timer_argv(self, transaction: str) -> list[str]:
            return ["/bin/false", transaction]

    before = network_state()
    with pytest.raises(HarpError, match="can't be started"):
        apply_plan(losing_plan(), host, what="setup", progress=NoProgress(), guard=NoGuard(DEADLINE_S))
    assert_same(before)
    assert not host.exists(FILE)


def main() -> None:
    wire_network()
    folder = Path(sys.argv[2])
    folder.mkdir()
    CASES[sys.argv[1]](make_tree(folder))


if __name__ == "__main__":
    main()
