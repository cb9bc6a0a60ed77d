"""Caps let through what they say: of an ENI, of a flow, of both, at the sender and where many meet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from harpctl.lab.lab import Lab
from harpctl.lab.plan import LabSpec

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
SECONDS = "0.7"  # what a bucket holds beside that is less than 4 % of it
SINK = """
import json, select, socket, sys, time
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in sys.argv[2:]]
for sock, address in zip(socks, sys.argv[2:]):
    sock.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    sock.bind((address, 2078))
print("ready", flush=True)
def take(until):
    got = dict.fromkeys(socks, 0)
    while (left := until - time.monotonic()) > 0:
        for sock in select.select(socks, [], [], left)[0]:
            got[sock] += len(sock.recv(65536)) + 28
    return [got[sock] for sock in socks]
select.select(socks, [], [])
begin = time.monotonic()
take(begin + 0.2)  # what the bucket held, and the queue, has passed then
begin = time.monotonic()
got = take(begin + float(sys.argv[1]))
took = time.monotonic() - begin
print(json.dumps([count * 8 / took / 1e6 for count in got]))
"""
FLOOD = """
import socket, sys
flows = []
for port, word in enumerate(sys.argv[1:]):
    own, target = word.split("-")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    sock.bind((own, 3000 + port))
    sock.connect((target, 2078))
    sock.setblocking(False)
    flows.append(sock)
import select
while True:
    for sock in select.select([], flows, [], 1)[1]:
        try:
            sock.send(bytes(1472))
        except OSError:
            pass
"""


def rates(lab: Lab, target: int, enis: int, flows: Sequence[tuple[int, int, int, int]]) -> list[float]:
    """Flood flows of (host, ENI, target's host, its ENI); give Mbit/s received by each of its ENIs."""
    addresses = [lab.address(target, eni) for eni in range(enis)]
    argv = lab.command(target, [sys.executable, "-IS", "-c", SINK, SECONDS, *addresses])
    senders = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as sink:
        try:
            assert sink.stdout is not None
            assert sink.stdout.readline() == "ready\n"
            for host in sorted({flow[0] for flow in flows}):
                own = [
                    f"{lab.address(flow[0], flow[1])}-{lab.address(flow[2], flow[3])}"
                    for flow in flows
                    if flow[0] == host
                ]
                senders.append(
                    subprocess.Popen(lab.command(host, [sys.executable, "-IS", "-c", FLOOD, *own]))
                )
            found: list[float] = json.loads(sink.stdout.readline())
            return found
        finally:
            for sender in senders:
                sender.kill()
                sender.wait()
            sink.kill()


def near(wanted: float) -> object:
    return pytest.approx(wanted, rel=0.1)


def test_each_eni_has_its_own_cap(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(enis=2, cap_mbps=(40, 120), switch=True))
    assert rates(lab, 1, 2, [(0, 0, 1, 0), (0, 1, 1, 1)]) == [near(40), near(120)]
    lab.cap(1, 0, 70)
    lab.cap(0, 0, 70)
    assert rates(lab, 1, 1, [(0, 0, 1, 0)]) == [near(70)]


def test_many_senders_share_the_receivers_cap(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(hosts=4, cap_mbps=60))
    assert rates(lab, 0, 1, [(host, 0, 0, 0) for host in (1, 2, 3)]) == [near(60)]


def test_a_flow_has_its_cap_and_all_together_the_enis(make_lab: MakeLab) -> None:
    lab = make_lab(LabSpec(flow_cap_mbps=40, cap_mbps=100))
    assert rates(lab, 1, 1, [(0, 0, 1, 0)]) == [near(40)]
    assert rates(lab, 1, 1, [(0, 0, 1, 0)] * 2) == [near(80)]
    assert rates(lab, 1, 1, [(0, 0, 1, 0)] * 5) == [near(100)]
