# SPDX-License-Identifier: Apache-2.0
"""Caps let through their rate: of an ENI, of a flow, of both, at the sender and where many meet."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from harpctl.errors import HarpError
from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
Flow = tuple[int, int, int, int]  # host and ENI that send, host and ENI that receive
SECONDS = "0.4"
WINDOWS_MAX = 20
SINK = """
import json, select, socket, sys, time
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in sys.argv[2:]]
for sock, address in zip(socks, sys.argv[2:]):
    sock.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    sock.bind((address, 2078))
def take(until):
    got = dict.fromkeys(socks, 0)
    while (left := until - time.monotonic()) > 0:
        for sock in select.select(socks, [], [], left)[0]:
            got[sock] += len(sock.recv(65536)) + 28
    return [got[sock] for sock in socks]
while True:
    begin = time.monotonic()
    got = take(begin + float(sys.argv[1]))
    took = time.monotonic() - begin
    print(json.dumps([count * 8 / took / 1e6 for count in got]), flush=True)
"""
FLOOD = """
import select, socket, sys
flows = []
for port, word in enumerate(sys.argv[1:]):
    own, target = word.split("-")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    sock.bind((own, 3000 + port))
    sock.connect((target, 2078))
    sock.setblocking(False)
    flows.append(sock)
while True:
    for sock in select.select([], flows, [], 1)[1]:
        try:
            sock.send(bytes(1472))
        except OSError:
            pass
"""


@contextlib.contextmanager
def flood_flows(lab: Lab, flows: Sequence[Flow]) -> Iterator[None]:
    """Send as much as each flow takes, a process per host."""
    with contextlib.ExitStack() as stack:
        for host in sorted({flow[0] for flow in flows}):
            ends = [(lab.address(*flow[:2]), lab.address(*flow[2:])) for flow in flows if flow[0] == host]
            words = [f"{own}-{target}" for own, target in ends]
            sender = subprocess.Popen(lab.command(host, [sys.executable, "-IS", "-c", FLOOD, *words]))
            stack.callback(sender.wait)
            stack.callback(sender.kill)
        yield


def assert_rates(lab: Lab, flows: Sequence[Flow], *wanted_mbps: float) -> None:
    """The ENIs of the flows' target receive that much, in a window in which all processes could run."""
    target = flows[0][2]
    addresses = [lab.address(target, eni) for eni in range(len(wanted_mbps))]
    argv = lab.command(target, [sys.executable, "-IS", "-c", SINK, SECONDS, *addresses])
    seen = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as sink, flood_flows(lab, flows):
        assert sink.stdout is not None
        for _ in range(WINDOWS_MAX):
            seen.append(json.loads(sink.stdout.readline()))
            if seen[-1] == pytest.approx(list(wanted_mbps), rel=0.1):
                break
        sink.kill()
    assert seen[-1] == pytest.approx(list(wanted_mbps), rel=0.1), seen


def test_each_eni_has_its_own_cap(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(enis=2, cap_mbps=(40, 120), switch=True))
    assert_rates(lab, [(0, 0, 1, 0), (0, 1, 1, 1)], 40, 120)
    lab.cap(1, 0, 70)
    lab.cap(0, 0, 70)
    assert_rates(lab, [(0, 0, 1, 0)], 70)


def test_many_senders_share_the_receivers_cap(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(hosts=4, cap_mbps=60))
    assert_rates(lab, [(host, 0, 0, 0) for host in (1, 2, 3)], 60)


def test_a_flow_has_its_cap_and_all_together_the_enis(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(flow_cap_mbps=40, cap_mbps=100))
    flow = (0, 0, 1, 0)
    assert_rates(lab, [flow], 40)
    assert_rates(lab, [flow] * 2, 80)
    assert_rates(lab, [flow] * 5, 100)


SPREAD = """
import contextlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
kind = socket.SOCK_STREAM if sys.argv[3] == "tcp" else socket.SOCK_DGRAM
for number in range(int(sys.argv[4])):
    with socket.socket(family, kind) as sock, contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((sys.argv[2], 4000 + (0 if sys.argv[5] == "source" else number)))
        sock.settimeout(0.2)
        sock.connect((sys.argv[1], 5000 + (number if sys.argv[5] == "source" else 0)))
        if kind == socket.SOCK_DGRAM:
            sock.send(b"x")
"""
FLOWS = 16


@pytest.mark.parametrize("same", ["source", "target"])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("family", [4, 6])
def test_a_class_is_a_5_tuple(make_lab: MakeLab, family: int, protocol: str, same: str) -> None:
    """Flows that differ in one port alone, whichever it is, have classes of their own."""
    lab = make_lab(LabSpec(flow_cap_mbps=40))
    own, target = lab.address(0), lab.address(1)
    if family == 6:
        own, target = "fd77::1", "fd77::2"
        for host, address in enumerate((own, target)):
            run_command(ip_inside(lab.hosts[host], "address", "add", f"{address}/64", "dev", "eni0", "nodad"))
    argv = [sys.executable, "-IS", "-c", SPREAD, target, own, protocol, str(FLOWS), same]
    subprocess.run(lab.command(0, argv), check=True, timeout=60)
    shown = run_command(run_inside(lab.hosts[0], "tc", "-s", "class", "show", "dev", "eni0"))
    used = [text.split()[0] for text in shown.split("class htb ")[1:] if " Sent 0 bytes" not in text]
    used.remove("1:1")  # the rest is no flow: neighbours are looked for
    assert FLOWS - 2 <= len(used) <= FLOWS, used  # some may share one: the hash is the same in each run


BURST = """
import json, socket, sys, time
count, size, segment = map(int, sys.argv[2:])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, 32, 4 << 20)  # SO_SNDBUFFORCE
if segment:
    sock.setsockopt(socket.SOL_UDP, 103, segment)  # UDP_SEGMENT
sock.connect((sys.argv[1], 2079))
begin = time.monotonic()
for _ in range(count):
    sock.send(bytes(size))
print(json.dumps(time.monotonic() - begin))
"""
MAC = "02:00:00:00:00:01"  # nobody's: what is sent once is not answered
PAYLOAD_BYTES = 1472
FRAME_BYTES = 1514
SENT = 132  # packets
SUPERFRAME_PACKETS = 44


@pytest.mark.parametrize("superframes", [False, True])
@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize(
    ("caps", "kept_packets"),
    [
        ({"queue_us": 200_000.0}, 2 + 16),  # the bucket of two packets and 25,000 bytes of queue
        ({"police_burst_kib": 64.0}, 43 + 1),  # the burst and a packet that waits
    ],
    ids=["short queue", "policer"],
)
def test_a_burst_is_dropped_beyond_bucket_and_queue(
    make_lab: MakeLab, caps: dict[str, float], kept_packets: int, superframes: bool, switch: bool
) -> None:
    """What is sent at once passes as far as both hold it; the rest is dropped by packets, and counted."""
    rate_mbps = 1
    lab = make_lab(LabSpec(cap_mbps=rate_mbps, switch=switch, **caps))  # type: ignore[arg-type]
    run_command(ip_inside(lab.hosts[0], "neigh", "replace", lab.address(1), "lladdr", MAC, "dev", "eni0"))
    words = (SENT // SUPERFRAME_PACKETS, SUPERFRAME_PACKETS * PAYLOAD_BYTES, PAYLOAD_BYTES)
    words = words if superframes else (SENT, PAYLOAD_BYTES, 0)
    argv = [sys.executable, "-IS", "-c", BURST, lab.address(1), *map(str, words)]
    before = lab.packet_counts()
    begin = time.monotonic()
    subprocess.run(lab.command(0, argv), check=True, timeout=60, stdout=subprocess.DEVNULL)
    counted = lab.packet_counts().since(before)
    refilled = (time.monotonic() - begin) * rate_mbps * 1e6 / 8 / FRAME_BYTES + 4
    assert SENT - kept_packets - refilled <= counted.dropped <= SENT - kept_packets + 1
    if not superframes:
        assert SENT - kept_packets <= counted.offered <= SENT + refilled  # what waits is counted later


@pytest.mark.parametrize("caps", [{"queue_us": 10_000.0}, {"police_burst_kib": 64.0}], ids=str)
def test_short_queues_and_policers_let_their_rate_through(make_lab: MakeLab, caps: dict[str, float]) -> None:
    lab = make_lab(LabSpec(cap_mbps=60, **caps))  # type: ignore[arg-type]
    assert_rates(lab, [(0, 0, 1, 0)], 60)
    for host in range(2):
        lab.cap(host, 0, 30)
    assert_rates(lab, [(0, 0, 1, 0)], 30)
    with pytest.raises(HarpError, match="a cap is at least 1 Mbit/s"):
        lab.cap(0, 0, 0.5)


def test_packets_that_a_rule_drops_are_counted(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(switch=True))
    run_command(ip_inside(lab.hosts[0], "neigh", "replace", lab.address(1), "lladdr", MAC, "dev", "eni0"))
    lab.faults(1).drop(1.0)
    before = lab.packet_counts()
    argv = [sys.executable, "-IS", "-c", BURST, lab.address(1), "10", "100", "0"]
    subprocess.run(lab.command(0, argv), check=True, timeout=60, stdout=subprocess.DEVNULL)
    counted = lab.packet_counts().since(before)
    assert counted.dropped >= 10
    assert counted.offered >= 10
