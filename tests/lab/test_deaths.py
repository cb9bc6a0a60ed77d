# SPDX-License-Identifier: Apache-2.0
"""A process is killed while interfaces are down, or with bytes unread: its peer knows within a second.

A process that lives never counts as dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets
from tests.conformance import abi
from tests.lab.remote import RemotePeer, connect_peers, transfer_messages

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
KNOWN_S = 1.0
TRIES = 3
ALIVE_S = 2.5  # in which a process that had ended would be known
LOAD = 20
SIZE = 1 << 20
WAITS = ("receiver", "sender")
CARRIERS = ("auto", "tcp", "udp")
DOWN: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "first": (2, [(0, 0)]),
    "second": (2, [(1, 1)]),
    "crossed": (2, [(0, 0), (1, 1)]),
    "all-but-one": (4, [(1, 0), (1, 1), (1, 2)]),
    "mixed": (4, [(0, 0), (0, 1), (1, 2)]),
}
UNREAD: dict[str, list[tuple[int, int]]] = {"reset": [], "down": [(1, 0)]}
LIVES = ("stopped", "loss", "load", "firewall", "reset")


def _combine_pairwise(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Combine names with carriers and with who waits: each two of them."""
    return [
        (name, WAITS[(number + turn) % 2], carrier)
        for number, name in enumerate(names)
        for turn, carrier in enumerate(CARRIERS)
    ]


@contextlib.contextmanager
def _connected_pair(lab: Lab, plugin: Path, carrier: str) -> Iterator[tuple[RemotePeer, RemotePeer]]:
    """Yield a receiver on host 0 and a sender on host 1 that have exchanged messages over all interfaces."""
    env = {"HARP_IFNAME": "eni", "HARP_DRIVER": carrier}
    with RemotePeer(lab, 0, plugin, env) as receiver, RemotePeer(lab, 1, plugin, env) as sender:
        connect_peers(receiver, sender)
        transfer_messages(receiver, sender, 4, SIZE)
        yield receiver, sender


def _time_to_know(
    lab: Lab, plugin: Path, carrier: str, waits: str, down: list[tuple[int, int]], is_stopped: bool
) -> float:
    """Kill one of a pair behind interfaces (host, ENI) that are down; return how long the other waits.

    `is_stopped`: it was stopped before, so that its PONG was due when it died.
    """
    with _connected_pair(lab, plugin, carrier) as (receiver, sender):
        survivor, victim = (receiver, sender) if waits == "receiver" else (sender, receiver)
        survivor.start("transfer", 1, SIZE)
        if is_stopped:
            victim.stop()
            _let_time_pass(KNOWN_S)
        for host, eni in down:
            lab.faults(host, eni).blackhole()
        victim.child.kill()
        start = time.monotonic()
        assert survivor.answer() == [abi.REMOTE]
        took_s = time.monotonic() - start
        (warn,) = [line for line in survivor.call("log") if "WARN" in line]
        assert "its process has ended" in warn or "the process ended" in warn
        for host, eni in down:
            lab.faults(host, eni).clear()
        return took_s


def _is_known_in_time(
    lab: Lab, plugin: Path, carrier: str, waits: str, down: list[tuple[int, int]], *, is_stopped: bool
) -> bool:
    """Return whether it is known within KNOWN_S, once in TRIES: a process may have no core for a while."""
    times = (_time_to_know(lab, plugin, carrier, waits, down, is_stopped) for _ in range(TRIES))
    return any(took_s < KNOWN_S for took_s in times)


@pytest.mark.parametrize(("what", "waits", "carrier"), _combine_pairwise(DOWN))
def test_a_death_is_known_within_a_second(
    make_lab: MakeLab, plugin_file: Path, what: str, waits: str, carrier: str
) -> None:
    """The last packets of the dead process's kernel may be lost where the control connection is."""
    enis, down = DOWN[what]
    lab = make_lab(LabSpec(enis=enis, subnets=Subnets.ONE))
    assert _is_known_in_time(lab, plugin_file, carrier, waits, down, is_stopped=False)


@pytest.mark.parametrize(("what", "waits", "carrier"), _combine_pairwise(UNREAD))
def test_the_death_of_a_stopped_process(
    make_lab: MakeLab, plugin_file: Path, what: str, waits: str, carrier: str
) -> None:
    """A stopped process has not read a PING, so that its kernel resets the control connection."""
    lab = make_lab(LabSpec(enis=2))
    assert _is_known_in_time(lab, plugin_file, carrier, waits, UNREAD[what], is_stopped=True)


REJECTED = {
    "firewall": 'iifname "eni1" tcp flags & (syn | ack) == syn',
    "reset": 'iifname "eni0" meta l4proto tcp',
}


def _reject(lab: Lab, what: str) -> None:
    rule = f"{REJECTED[what]} reject with tcp reset"
    table = f"table inet harp_test {{ chain c {{ type filter hook input priority 0; {rule}; }}; }}"
    for host in lab.hosts:
        run_command(run_inside(host, "nft", "-f", "-", stdin=table))


def _let_time_pass(seconds: float) -> None:
    time.sleep(seconds)  # the job has to outlast this time


@contextlib.contextmanager
def _load_machine() -> Iterator[None]:
    """Run LOAD processes that compute."""
    words = [sys.executable, "-c", "while True: pass"]
    children = [subprocess.Popen(words) for _ in range(LOAD)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.parametrize(("what", "waits", "carrier"), _combine_pairwise(LIVES))
def test_a_living_process_is_waited_for(
    make_lab: MakeLab, plugin_file: Path, what: str, waits: str, carrier: str
) -> None:
    """The interface of its control connection is down, and it is stopped, slow or hardly heard.

    Or a firewall refuses new connections, as the kernel does for a process that has ended; or it resets the
    control connection of a stopped process.
    """
    lab = make_lab(LabSpec(enis=2))
    with _connected_pair(lab, plugin_file, carrier) as (receiver, sender), contextlib.ExitStack() as stack:
        survivor, other = (receiver, sender) if waits == "receiver" else (sender, receiver)
        if what == "load":
            stack.enter_context(_load_machine())
        if what != "reset":
            lab.faults(1, 0).blackhole()
        if what == "loss":
            lab.faults(1, 1).drop(0.3)
        if what in REJECTED:
            _reject(lab, what)
        survivor.start("transfer", 1, SIZE)
        if what in ("stopped", "reset"):
            other.stop()
        _let_time_pass(ALIVE_S)
        for eni in range(2):
            lab.faults(1, eni).clear()
        os.kill(other.child.pid, signal.SIGCONT)
        assert other.call("transfer", 1, SIZE) == [abi.SUCCESS]
        assert survivor.answer() == [abi.SUCCESS]
        assert not [line for line in survivor.call("log") if "WARN" in line]
