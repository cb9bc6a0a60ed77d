"""Zero-copy AF_XDP on a real NIC driver: two guests whose virtio_net binds it, and wires between them.

The wires of eth0 and eth1 are sockets that the two qemus share; eth2, with several queues and a real NIC's
offloads, hangs on a bridge in a network namespace. eth0 and eth2 have VIRTIO_F_ACCESS_PLATFORM; eth1 has not,
and there virtio_net refuses zero-copy. The ranks meet over eth0: the kernel's own packets have to pass.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from harpctl.bench.perf import PerfReport, parse_report
from tests.lab.job import EXIT_PLUGIN, statistics_of
from tests.vm.image import run_tool, write_filesystem
from tests.vm.machine import Machine, Shape
from tests.vm.xdp_image import guest_image

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

MEMORY_MIB = 1024
PROCESSORS = 1  # with more, qemu without KVM now and then runs half of an instruction that Linux patches
QUEUES = 2  # that virtio_net uses of eth2; XDP wants one more per processor for its own sends
PLATFORM = ",iommu_platform=on,disable-legacy=on"
NICS = {"eth0": PLATFORM, "eth1": "", "eth2": f"{PLATFORM},mq=on,vectors={4 * QUEUES + 2}"}
PAYLOAD_BYTES = 64 << 20
SIZES = "1,8,127,1000,4096,16385,64K,512K,1M"
MESSAGES = 8  # of each size
JOB_S = 240
HURT_S = 20  # how long the jobs run that something happens to
KILLED, TIMED_OUT = 137, 124  # exit codes of timeout(1)
MEETING = "10.7.0.1:20500"
ETHERNET_MTU = 1500
MTU_MAX = 9000
REFUSED_JUMBO = "xdp zero-copy: binding queue 0 zero-copy with several buffers: Operation not supported"
REFUSED = "xdp zero-copy: binding queue 0 zero-copy: Invalid argument"
MOST = 0.98  # of the packets: a few go through the sockets while the kernel looks for a next hop
COUNTERS = ("rx_xdp_redirects", "tx_xdp_tx")  # of virtio_net; the latter counts zero-copy sends only


class Ended(NamedTuple):
    """How a rank ended, and what went through AF_XDP meanwhile."""

    code: int
    log: str
    statistics: Counter[str]
    redirected: int  # packets that the XDP program gave to a socket
    sent: int  # packets that the NIC took out of our frames


class Guest:
    """A machine and the rank that it plays."""

    def __init__(self, machine: Machine, rank: int) -> None:
        self.machine = machine
        self.rank = rank
        self._before: dict[str, Counter[str]] = {}
        machine.run("mount -o ro /dev/vdb /mnt; ip link set lo up; dmesg --clear")
        machine.run(f"ethtool -L eth2 combined {QUEUES}")
        for number, nic in enumerate(NICS):
            machine.run(
                f"ip address add 10.7.{number}.{rank + 1}/24 dev {nic}\n"
                f"ip address add fd07:{number}::{rank + 1}/64 dev {nic} nodad\n"
                f"ip link set {nic} up"
            )
            for version, address in ((4, f"10.7.{number}.{rank + 1}"), (6, f"fd07:{number}::{rank + 1}")):
                conf = f"[eni]\ninterface = {nic}\naddress = {address}\n"
                folder = f"/run/{nic}.{version}"
                machine.run(f"mkdir {folder}; cat >{folder}/ztcp0.conf <<'END'\n{conf}END")

    def _counters(self, nic: str) -> Counter[str]:
        listed = self.machine.run(f"ethtool -S {nic}")
        return Counter({name: int(re.findall(rf"\b{name}: (\d+)", listed)[0]) for name in COUNTERS})

    def sent_by_queue(self, nic: str) -> list[int]:
        """Count what each queue took out of our frames."""
        listed = self.machine.run(f"ethtool -S {nic}")
        return [int(count) for count in re.findall(r"\btx\d+_xdp_tx: (\d+)", listed)]

    def start(self, env: str, words: str) -> None:
        """Start harp-perf in the background."""
        self._before = {nic: self._counters(nic) for nic in NICS}
        perf = f"/mnt/harp-perf --plugin /mnt/libnccl-net.so --nranks 2 --rank {self.rank} --log info {words}"
        self.machine.run(
            "cd /run; kill -9 $(pidof harp-perf) 2>/dev/null; rm -f code log\n"
            f"(timeout {JOB_S} env {env} {perf} --rendezvous {MEETING} --json - >report 2>log\n"
            "echo $? >code.new; mv code.new code) </dev/null >/dev/null 2>&1 &"
        )

    def until(self, condition: str) -> None:
        """Wait until a shell command succeeds."""
        self.machine.run(f"until {condition}; do sleep 0.2; done", JOB_S + 60)

    def wait(self) -> Ended:
        """Wait until harp-perf has ended."""
        self.until("[ -f /run/code ]")
        log = self.machine.run("cat /run/log")
        grown: Counter[str] = Counter()
        for nic, before in self._before.items():
            grown += self._counters(nic) - before
        code = int(self.machine.run("cat /run/code"))
        return Ended(code, log, statistics_of(log), grown[COUNTERS[0]], grown[COUNTERS[1]])

    def attached(self) -> list[str]:
        """List what there is of AF_XDP: programs on interfaces, programs and maps of ours, sockets."""
        listed = json.loads(self.machine.run("bpftool -j net show"))[0]["xdp"]
        words = [f"{entry['devname']} {entry['mode']}" for entry in listed]
        for kind in ("prog", "map"):
            named = re.findall(r"\bname (harp_[a-z]+)", self.machine.run(f"bpftool {kind} show"))
            words += sorted(named)
        return words + re.findall(r"eth\d+:q\d+", self.machine.run("ss -H --xdp"))


Guests = tuple[Guest, Guest]


@pytest.fixture(scope="module")
def payload(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk with the plugin and harp-perf on it."""
    folder = tmp_path_factory.mktemp("payload")
    (folder / "tree").mkdir()
    for file in (plugin_file, plugin_file.parent / "harp-perf"):
        shutil.copy(file, folder / "tree" / file.name)
    write_filesystem(folder / "tree", folder / "disk.img", PAYLOAD_BYTES, label="payload")
    return folder / "disk.img"


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace with the bridge for eth2 and an interface of several queues for each guest."""
    name = f"harp-vm-{os.getpid()}"
    run_tool(["ip", "netns", "add", name])
    try:
        ip = ["ip", "-n", name]
        run_tool([*ip, "link", "add", "bridge", "up", "type", "bridge"])
        for rank in range(2):
            run_tool([*ip, "tuntap", "add", "dev", f"tap{rank}", "mode", "tap", "multi_queue"])
            run_tool([*ip, "link", "set", f"tap{rank}", "master", "bridge", "mtu", str(MTU_MAX), "up"])
        yield name
    finally:
        run_tool(["ip", "netns", "delete", name])


def shape(namespace: str, wires: Path, rank: int) -> Shape:
    sockets = {
        nic: f"stream,server={'off' if rank else 'on'},addr.type=unix,addr.path={wires / nic}"
        for nic in ("eth0", "eth1")
    }
    tap = f"tap,ifname=tap{rank},queues={2 * QUEUES},script=no,downscript=no,vhost=off"
    words: list[str] = []
    for nic, options in NICS.items():
        words += ["-netdev", f"{sockets.get(nic, tap)},id={nic}"]
        words += ["-device", f"virtio-net-pci,netdev={nic},mac=52:54:00:00:0{nic[-1]}:0{rank + 1}{options}"]
    return Shape(MEMORY_MIB, PROCESSORS, words, inside=("ip", "netns", "exec", namespace))


@pytest.fixture(scope="module")
def guests(
    root: Path, payload: Path, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guests]:
    image = guest_image(root / ".cache" / "vm")
    folder = tmp_path_factory.mktemp("guests")
    with ExitStack() as stack:

        def boot(rank: int) -> Guest:
            form, console = shape(namespace, folder, rank), folder / f"console{rank}"
            machine = Machine(image.disk, console, payload=payload, direct=image.direct, shape=form)
            return Guest(stack.enter_context(machine), rank)

        both = boot(0), boot(1)
        print(both[0].machine.run("uname -r"))
        yield both
        for guest in both:
            complaints = guest.machine.ask("dmesg | grep -E 'WARNING|BUG|Oops|Call Trace'")
            assert complaints.code, complaints.text


def config_of(nic: str, version: int = 4) -> str:
    return f"HARP_CONF_DIR=/run/{nic}.{version}"


def start(guests: Guests, drivers: Sequence[str], words: str, config: str) -> None:
    for guest, driver in zip(reversed(guests), reversed(drivers), strict=True):
        guest.start(f"{config} HARP_DRIVER={driver}", words)


def finish(guests: Guests) -> tuple[Ended, Ended]:
    first, second = guests[0].wait(), guests[1].wait()
    print(first.log, second.log, sep="----\n")
    assert (first.code, second.code) == (0, 0)
    report = read_report(guests)
    print(report)
    assert report.check
    assert report.results
    assert all(result.messages > 0 and result.wrong == 0 for result in report.results)
    return first, second


def read_report(guests: Guests) -> PerfReport:
    return parse_report(guests[0].machine.run("cat /run/report"))


def assert_went_through(end: Ended, rung: str) -> None:
    """Check that it got this rung, and that the packets took it."""
    assert f"driver {rung}" in re.sub(r" \(queues? [\d, -]+\)", "", end.log)
    assert not end.statistics["driver_falls"]
    received = end.statistics["rx_packets"]
    sent = end.statistics["tx_packets"] + end.statistics["tx_acks"]
    assert received
    assert sent
    if rung.startswith("xdp"):
        assert end.redirected >= MOST * received
    else:
        assert end.redirected == 0
    if rung == "xdp zero-copy":
        assert end.sent >= MOST * sent
    else:
        assert end.sent == 0


def assert_nothing_left(guests: Guests) -> None:
    assert [guest.attached() for guest in guests] == [[], []]


@pytest.mark.parametrize(
    ("drivers", "rungs"),
    [
        (("xdp-zc", "xdp-zc"), ("xdp zero-copy", "xdp zero-copy")),
        (("auto", "udp"), ("xdp zero-copy", "udp gso+gro")),
        (("udp", "auto"), ("udp gso+gro", "xdp zero-copy")),
    ],
)
@pytest.mark.parametrize("version", [4, 6])
def test_data_arrives_whole(
    guests: Guests, drivers: Sequence[str], rungs: Sequence[str], version: int
) -> None:
    start(
        guests,
        drivers,
        f"--mode bidir --sizes {SIZES} --iters {MESSAGES} --warmup 2",
        config_of("eth0", version),
    )
    for end, rung in zip(finish(guests), rungs, strict=True):
        assert_went_through(end, rung)
    assert_nothing_left(guests)


def test_copy_mode_where_zero_copy_is_refused(guests: Guests) -> None:
    """The ladder on a driver that knows zero-copy and cannot do it: each word of the conf gets its rung."""
    words = "--mode bidir --sizes 64K --iters 10 --warmup 2"
    start(guests, ("auto", "xdp"), words, config_of("eth1"))
    first, second = finish(guests)
    assert_went_through(first, f"udp gso+gro: {REFUSED},")
    assert_went_through(second, f"xdp native copy: {REFUSED},")

    start(guests, ("xdp-zc", "xdp-copy"), words, config_of("eth1"))
    end = guests[0].wait()
    assert end.code == EXIT_PLUGIN
    assert "WARN " in end.log
    assert f"eth1: {REFUSED}" in end.log
    guests[1].wait()
    assert_nothing_left(guests)


@pytest.mark.parametrize("version", [4, 6])
def test_several_queues(guests: Guests, version: int) -> None:
    """Each queue has rings of its own and sends, on a NIC whose receive offloads XDP has to switch off."""
    words = f"--mode bidir --sizes {SIZES} --iters {MESSAGES} --warmup 2 --connections 4"
    before = [guest.sent_by_queue("eth2") for guest in guests]
    start(guests, ("xdp-zc", "auto"), words, config_of("eth2", version))
    for end in finish(guests):
        assert_went_through(end, "xdp zero-copy")
    for guest, old in zip(guests, before, strict=True):
        grown = [new - known for new, known in zip(guest.sent_by_queue("eth2"), old, strict=True)]
        assert len(grown) >= QUEUES
        assert all(count > 10 for count in grown[:QUEUES]), grown
    assert_nothing_left(guests)


@pytest.mark.parametrize(
    ("mtu", "rung"),
    [(3498, "xdp zero-copy"), (MTU_MAX, f"udp gso+gro: {REFUSED_JUMBO},")],
)
def test_larger_packets(guests: Guests, mtu: int, rung: str) -> None:
    """A packet must fit a frame here: virtio_net has zero-copy without several buffers for a packet."""
    try:
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {mtu}")
        start(guests, ("auto", "auto"), "--mode bidir --sizes 1,64K,1M --iters 5", config_of("eth2"))
        for end in finish(guests):
            assert_went_through(end, rung)
            assert end.statistics["tx_bytes"] > ETHERNET_MTU * end.statistics["tx_packets"]
        assert_nothing_left(guests)
    finally:
        for guest in guests:
            guest.machine.run(f"ip link set eth2 mtu {ETHERNET_MTU}")


def running(guests: Guests) -> None:
    """Start a job with zero-copy on both ends and wait until it moves payload."""
    start(
        guests,
        ("xdp-zc", "xdp-zc"),
        f"--mode bidir --sizes 64K --time {HURT_S} --timeout 30",
        config_of("eth0"),
    )
    for guest in guests:
        guest.until("grep -qs 'connected to' /run/log || [ -f /run/code ]")
        attached = guest.attached()
        assert attached == ["eth0 driver", "harp_filter", "harp_ports", "harp_sockets", "eth0:q0"]


def test_an_interface_that_goes_down_takes_the_job_to_the_sockets(guests: Guests) -> None:
    running(guests)
    guests[0].machine.run("ip link set eth0 down; sleep 1; ip link set eth0 up")
    first, second = finish(guests)
    assert "AF_XDP is used no more: the interface went down; going on with udp gso+gro" in first.log
    assert first.statistics["driver_falls"] == 1
    assert second.statistics["driver_falls"] == 0
    assert_nothing_left(guests)


def test_a_killed_process_leaves_nothing_attached(guests: Guests) -> None:
    running(guests)
    guests[0].machine.run("kill -9 $(pidof harp-perf)")
    codes = [guest.wait().code for guest in guests]
    assert codes[0] == KILLED
    assert codes[1] not in {0, KILLED, TIMED_OUT}, "the other rank ends by itself"
    guests[0].until("! ss -H --xdp | grep -q .")  # the kernel tears down what the process had
    assert_nothing_left(guests)
    start(guests, ("xdp-zc", "xdp-zc"), "--mode stream --sizes 64K --iters 5 --warmup 1", config_of("eth0"))
    for end in finish(guests):
        assert_went_through(end, "xdp zero-copy")
