# SPDX-License-Identifier: Apache-2.0
"""Caps let through their rate: of an ENI, of a flow, of both, at the sender and where many meet."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.plan import LabSpec

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
def flooding(lab: Lab, flows: Sequence[Flow]) -> Iterator[None]:
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
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as sink, flooding(lab, flows):
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
