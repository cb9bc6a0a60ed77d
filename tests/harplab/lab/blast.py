# SPDX-License-Identifier: Apache-2.0
"""Datagrams from one host of a lab to another, counted one by one: what a fault did is what arrived."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence

from harplab.lab.commands import Command
from harplab.lab.lab import Lab, run_command

PORT = 2077
RECEIVE = """
import json, select, socket, struct, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
sock.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
got, wrong, took, over = [], 0, [], False
while True:
    ready, _, _ = select.select([sock] if over else [sock, sys.stdin], [], [], 0.15 if over else None)
    if over and not ready:
        break
    over = over or sys.stdin in ready
    if sock in ready:
        data = sock.recv(65536)
        number, sent_ns = struct.unpack_from("!QQ", data)
        wrong += data[16:] != bytes(len(data) - 16) or number >= 1 << 32
        took.append((time.monotonic_ns() - sent_ns) / 1e6)
        got.append(number)
print(json.dumps({"numbers": got, "wrong": wrong, "took_ms": took}))
"""
SEND = """
import socket, struct, sys, time
target, port, own, count, size, gap_us = sys.argv[1], *sys.argv[2:4], *map(int, sys.argv[4:])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR: what this host itself drops is an error
sock.bind((own, 0))
end = time.monotonic()
for number in range(count):
    end += gap_us / 1e6
    while time.monotonic() < end:
        pass
    sock.sendto(struct.pack("!QQ", number, time.monotonic_ns()) + bytes(size - 16), (target, int(port)))
"""


@dataclasses.dataclass(frozen=True)
class Arrived:
    """The datagrams that came: their numbers in their order, how many had wrong bytes, how long each took."""

    numbers: Sequence[int]
    wrong: int
    took_ms: Sequence[float]

    @property
    def twice(self) -> int:
        """Count those that came again."""
        return len(self.numbers) - len(set(self.numbers))

    @property
    def overtaken(self) -> int:
        """Count the datagrams that came after a later one."""
        last, late = -1, 0
        for number in self.numbers:
            late += number < last
            last = max(last, number)
        return late

    def gaps(self, count: int) -> list[int]:
        """Return the lengths of the runs that are missing of so many sent."""
        there, found, run = set(self.numbers), [], 0
        for number in range(count + 1):
            if number in there or number == count:
                found += [run] if run else []
                run = 0
            else:
                run += 1
        return found


def blast_flows(
    lab: Lab,
    count: int,
    *,
    source: tuple[int, int] = (0, 0),
    target: tuple[int, int] = (1, 0),
    size: int = 100,
    gap_us: int = 10,
) -> Arrived:
    """Send datagrams of zeros from one host's ENI to another's."""
    address = lab.address(*target)
    argv = lab.command(target[0], [sys.executable, "-IS", "-c", RECEIVE, address, str(PORT)])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        words = [address, str(PORT), lab.address(*source), str(count), str(size), str(gap_us)]
        run_command(Command(tuple(lab.command(source[0], [sys.executable, "-IS", "-c", SEND, *words]))))
        child.stdin.write("over\n")
        child.stdin.flush()
        result = json.loads(child.stdout.readline())
    return Arrived(result["numbers"], result["wrong"], result["took_ms"])
