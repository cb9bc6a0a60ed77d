# SPDX-License-Identifier: Apache-2.0
"""The guests of the network tests: what they are made of, and the ranks of harp-perf that they run.

The wires of eth0 and eth1 are sockets that the two qemus share; eth2, with several queues and a real NIC's
offloads, hangs on a bridge in a network namespace. eth0 and eth2 have VIRTIO_F_ACCESS_PLATFORM; eth1 has not,
and there virtio_net refuses zero-copy.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harplab.perf.job import parse_report
from tests.lab.job import statistics_of
from tests.vm.machine import Machine, Shape

MEMORY_MIB = 1024
PROCESSORS = 1  # with more, qemu without KVM now and then runs half of an instruction that Linux patches
QUEUES = 2  # the queues that virtio_net uses of eth2; XDP wants one more per processor for its own sends
PLATFORM = {"iommu_platform": True, "disable-legacy": "on"}
NICS: dict[str, dict[str, object]] = {  # properties of the devices
    "eth0": PLATFORM,
    "eth1": {},
    "eth2": {**PLATFORM, "mq": True, "vectors": 4 * QUEUES + 2},
}
JOB_S = 900  # without KVM, beside other work
WHOLE = "--mode bidir --sizes 1,8,127,1000,4096,16385,64K,256K --iters 4 --warmup 1"  # 2 MB each way
KILLED, TIMED_OUT = 137, 124  # exit codes of timeout(1)
MEETING = "10.7.0.1:20500"
ETHERNET_MTU = 1500
MTU_MAX = 9000
MOST = 0.98  # the share of the packets: a few go through the sockets while the kernel looks for a next hop
COUNTERS = ("rx_xdp_redirects", "tx_xdp_tx")  # virtio_net's counters; the latter counts zero-copy sends only


class Ended(NamedTuple):
    """The end of a rank, and what went through AF_XDP meanwhile."""

    code: int
    log: str
    statistics: Counter[str]
    redirected: int  # packets that the XDP program redirected to a socket
    sent: int  # packets that the NIC took out of our frames


class Guest:
    """A machine and the rank that it plays."""

    def __init__(self, machine: Machine, rank: int) -> None:
        self.machine = machine
        self.rank = rank
        self._before: dict[str, Counter[str]] = {}
        machine.run("mount -o ro /dev/vdb /mnt; ip link set lo up; dmesg --clear")
        self.kernel = machine.run("uname -r").strip()
        for number, nic in enumerate(NICS):
            self.bring_up(nic, number)
            for version in (4, 6):
                self.configure(f"{nic}.{version}", nic, address_of(number, rank, version))

    def bring_up(self, nic: str, number: int) -> None:
        """Set up the queues and addresses of an interface: those of the subnet of that number."""
        self.machine.run(
            (f"ethtool -L {nic} combined {QUEUES}\n" if nic == "eth2" else "")
            + f"ip address replace {address_of(number, self.rank, 4)}/24 dev {nic}\n"
            f"ip address replace {address_of(number, self.rank, 6)}/64 dev {nic} nodad\n"
            f"ip link set {nic} up"
        )

    def configure(self, folder: str, nic: str, address: str, more: str = "") -> None:
        """Write a conf file of an interface into a folder of its own; `more` are lines of [eni]."""
        conf = f"[eni]\ninterface = {nic}\naddress = {address}\n{more}"
        self.machine.run(f"mkdir -p /run/{folder}; cat >/run/{folder}/ztcp0.conf <<'END'\n{conf}END")

    def _read_counters(self, nic: str) -> Counter[str]:
        listed = self.machine.execute(f"ethtool -S {nic}").text  # nothing where the NIC is gone
        found = {name: re.findall(rf"\b{name}: (\d+)", listed) for name in COUNTERS}
        return Counter({name: int(counts[0]) for name, counts in found.items() if counts})

    def sent_by_queue(self, nic: str) -> list[int]:
        """Count what each queue took out of our frames."""
        listed = self.machine.run(f"ethtool -S {nic}")
        return [int(count) for count in re.findall(r"\btx\d+_xdp_tx: (\d+)", listed)]

    def socket_datagrams(self) -> int:
        """Count the datagrams that sockets have been given."""
        listed = self.machine.run("cat /proc/net/snmp /proc/net/snmp6")
        four = re.findall(r"^Udp: \w.*", listed, re.MULTILINE)
        count = dict(zip(four[0].split(), four[1].split(), strict=True))["InDatagrams"]
        return int(count) + int(re.findall(r"^Udp6InDatagrams\s+(\d+)", listed, re.MULTILINE)[0])

    def start(self, env: str, words: str, *, meeting: str = MEETING, job: str = "job") -> None:
        """Start harp-perf in the background, where it yields to the test; another job of this name ends."""
        self._before = {nic: self._read_counters(nic) for nic in NICS}
        perf = f"/mnt/harp-perf --plugin /mnt/libnccl-net.so --nranks 2 --rank {self.rank} --log info {words}"
        self.machine.run(
            f"mkdir -p /run/{job}; cd /run/{job}\n"
            "[ -f pid ] && { kill -9 -$(cat pid) 2>/dev/null; until [ -f code ]; do sleep 0.1; done; }\n"
            "rm -f pid code log\n"
            f"(timeout {JOB_S} env {env} nice -n 19 {perf} --rendezvous {meeting} --json - >report 2>log &\n"
            "echo $! >pid; wait $!; echo $? >code.new; mv code.new code) </dev/null >/dev/null 2>&1 &"
        )

    def until(self, condition: str) -> None:
        """Wait until a shell command succeeds."""
        self.machine.run(f"until {condition}; do sleep 0.2; done", JOB_S + 60)

    def log(self, job: str = "job") -> str:
        """Return what a rank has logged so far."""
        return self.machine.run(f"cat /run/{job}/log")

    def wait(self, job: str = "job") -> Ended:
        """Wait until harp-perf has ended."""
        self.until(f"[ -f /run/{job}/code ]")
        log = self.log(job)
        grown: Counter[str] = Counter()
        for nic, before in self._before.items():
            grown += self._read_counters(nic) - before
        code = int(self.machine.run(f"cat /run/{job}/code"))
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


def address_of(number: int, rank: int, version: int = 4) -> str:
    """Return the address of a guest in a subnet: eth0 is in 0, eth1 in 1, and so on."""
    return f"10.7.{number}.{rank + 1}" if version == 4 else f"fd07:{number}::{rank + 1}"


def device_of(nic: str, rank: int) -> dict[str, object]:
    """Describe a NIC as qemu's device_add wants it."""
    mac = f"52:54:00:00:0{nic[-1]}:0{rank + 1}"
    return {"driver": "virtio-net-pci", "id": nic, "netdev": f"wire-{nic}", "mac": mac, **NICS[nic]}


def shape_of(namespace: str, wires: Path, rank: int) -> Shape:
    """Return the machine of a rank, whose wires are sockets in a folder and an interface in a namespace."""
    sockets = {
        nic: f"stream,server={'off' if rank else 'on'},addr.type=unix,addr.path={wires / nic}"
        for nic in ("eth0", "eth1")
    }
    tap = f"tap,ifname=tap{rank},queues={2 * QUEUES},script=no,downscript=no,vhost=off"
    words: list[str] = []
    for nic in NICS:
        words += ["-netdev", f"{sockets.get(nic, tap)},id=wire-{nic}"]
        words += ["-device", json.dumps(device_of(nic, rank))]
    return Shape(MEMORY_MIB, PROCESSORS, words, inside=("ip", "netns", "exec", namespace))


def config_of(nic: str, version: int = 4) -> str:
    """Return the variable by which a job uses one interface."""
    return f"HARP_CONF_DIR=/run/{nic}.{version}"


def start_job(
    guests: Guests,
    drivers: Sequence[str],
    words: str,
    config: str,
    *,
    meeting: str = MEETING,
    job: str = "job",
) -> None:
    """Start a job with these drivers on the two ends."""
    for guest, driver in zip(reversed(guests), reversed(drivers), strict=True):
        guest.start(f"{config} HARP_DRIVER={driver}", words, meeting=meeting, job=job)


def finish_job(guests: Guests, job: str = "job") -> tuple[Ended, Ended]:
    """Wait for a job's orderly end with every byte right."""
    first, second = guests[0].wait(job), guests[1].wait(job)
    print(first.log, second.log, sep="----\n")
    assert (first.code, second.code) == (0, 0)
    report = parse_report(guests[0].machine.run(f"cat /run/{job}/report"))
    print(report)
    assert report.check
    assert report.results
    assert all(result.messages > 0 and result.wrong == 0 for result in report.results)
    return first, second


def assert_went_through(end: Ended, mode: str) -> None:
    """Check that it got this mode, and that the packets took it."""
    assert f"driver {mode}" in re.sub(r" \(queues? [\d, -]+\)", "", end.log)
    assert not end.statistics["driver_fallbacks"]
    received = end.statistics["rx_packets"]
    sent = end.statistics["tx_packets"] + end.statistics["tx_acks"] - end.statistics["acks_riding"]
    assert received
    assert sent
    if mode.startswith("xdp"):
        assert end.redirected >= MOST * received
    else:
        assert end.redirected == 0
    if mode == "xdp zero-copy":
        assert end.sent >= MOST * sent
    else:
        assert end.sent == 0


def assert_nothing_left(guests: Guests) -> None:
    """Check that no program, no socket and no map of ours is left."""
    assert [guest.attached() for guest in guests] == [[], []]
