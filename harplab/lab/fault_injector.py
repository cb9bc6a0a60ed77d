# SPDX-License-Identifier: Apache-2.0
"""The fault injector (plugin/lab/fault_injector.c), which makes faults between a host's ENI and the switch.

It takes a port out of its bridge, joins the two again by a veth pair, and forwards between the port and the
pair's other end. It runs only while a fault needs it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from harpctl.build_info import built_file
from harpctl.errors import HarpError
from harplab.lab.commands import Command, Run, ip_inside, run_inside

MTU_BYTES = 65535
START_S = 10.0
ANSWER_S = 5.0
POLL_S = 0.002

_children: list[
    subprocess.Popen[bytes]
] = []  # this process's children; one that has ended is reaped at the next start
_seeds = itertools.count(1)


class FaultInjector:
    """the fault injector of one port of a lab's switch, whichever process has started it."""

    def __init__(self, run: Run, fabric: str, port: str, bridge: str, control: Path) -> None:
        self._run = run
        self._fabric, self._port, self._bridge = fabric, port, bridge
        self._control = control
        self._switch_end, self._injector_end = f"{port}s", f"{port}b"

    @property
    def is_inserted(self) -> bool:
        """Return whether it stands between port and switch."""
        return self._control.exists()

    def insert(self) -> None:
        """Start it, and let it have the port; frames are lost for some microseconds."""
        program = built_file("fault_injector", "harplab")
        self.withdraw()  # what somebody has left who was killed
        self._run_batch(
            f"link add {self._switch_end} type veth peer name {self._injector_end}",
            f"link set {self._injector_end} mtu {MTU_BYTES} up",
            f"link set {self._switch_end} mtu {MTU_BYTES} up",
        )
        try:
            self._wait_link_up()
            self._start_program(program)
            self._run_batch(
                f"link set {self._port} nomaster", f"link set {self._switch_end} master {self._bridge}"
            )
        except BaseException:
            self.withdraw()
            raise

    def send(self, *lines: str) -> dict[str, dict[str, int]]:
        """Send a request in the format of fault_injector.c; return what it did to the packets of each."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(ANSWER_S)
            try:
                peer.connect(str(self._control))
                peer.sendall("".join(f"{line}\n" for line in lines).encode())
                peer.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: peer.recv(4096), b""))
            except OSError as error:
                raise HarpError(
                    f"The program that makes the faults of {self._port} does not answer: {error.strerror}.",
                    "Take its faults away with `harpctl lab fault HOST ENI clear`.",
                ) from None
        return msgspec.json.decode(answer, type=dict[str, dict[str, int]])

    def withdraw(self) -> None:
        """Return the port to its bridge, and end the program; nothing happens where it is not in."""
        with contextlib.suppress(HarpError):
            self._run_batch(
                f"link set {self._switch_end} nomaster", f"link set {self._port} master {self._bridge}"
            )
        with contextlib.suppress(HarpError):
            self.send("end")
        with contextlib.suppress(HarpError):
            self._run_batch(f"link delete {self._switch_end}")
        self._control.unlink(missing_ok=True)

    def _run_batch(self, *lines: str) -> None:
        text = "".join(f"{line}\n" for line in lines)
        self._run(Command(("ip", "-netns", self._fabric, "-batch", "-"), text))

    def _wait_link_up(self) -> None:
        """A bridge forwards to a port whose link it finds up, and that follows the carrier with a delay."""
        show = ip_inside(self._fabric, "-oneline", "link", "show", "dev", self._switch_end)
        deadline = time.monotonic() + START_S
        while "state UP" not in self._run(show):
            if time.monotonic() > deadline:
                raise HarpError(f"{self._switch_end} in {self._fabric} does not come up.")
            time.sleep(POLL_S)

    def _start_program(self, program: Path) -> None:
        self._control.parent.mkdir(parents=True, exist_ok=True)
        self._control.unlink(missing_ok=True)
        words = (str(program), str(self._control), str(next(_seeds)), self._port, self._injector_end)
        _children[:] = [child for child in _children if child.poll() is None]
        child = subprocess.Popen(
            run_inside(self._fabric, *words).argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _children.append(child)
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(HarpError):
                self.send()
                break
            if child.poll() is not None or time.monotonic() > deadline:
                child.kill()
                error = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
                raise HarpError(f"The program that makes faults did not start: {error or 'it printed nothing'}")
            time.sleep(POLL_S)
        if child.stderr:
            child.stderr.close()


def request_line(direction: str, chances: Sequence[float], times_ms: Sequence[float], mtu_bytes: int) -> str:
    """Return the request line of a direction: chances as shares of 1, two times, the MTU."""
    parts = [str(round(chance * 1_000_000_000)) for chance in chances]
    return " ".join([direction, *parts, *(str(round(ms * 1_000_000)) for ms in times_ms), str(mtu_bytes)])


def merge_counts(counts: Mapping[str, Mapping[str, int]], dropped: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Add what the firewall dropped to what the injector counted."""
    return {
        direction: {"dropped": dropped.get(direction, 0), **counts.get(direction, {})}
        for direction in ("in", "out")
    }
