# SPDX-License-Identifier: Apache-2.0
"""Starts peers (tests/lab/peer.py) on the hosts of a lab, and talks to them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.lab.job import ENI, poll_until

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 90.0


def _thread_state(task: Path) -> str:
    """Return the state of a thread, as in "S"."""
    return (task / "stat").read_text().rpartition(") ")[2][0]


class Hosts(Protocol):
    """The place of peers: a lab, or this machine alone."""

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs on that host."""


class RemotePeer:
    """A peer on a host; a context manager that leaves no process."""

    def __init__(
        self, lab: Hosts, host: int, plugin: Path, env: Mapping[str, str] | None = None, ifname: str = ENI
    ) -> None:
        values = {"HARP_IFNAME": f"={ifname}", "CONFORMANCE_PLUGIN": str(plugin), **(env or {})}
        self.child = subprocess.Popen(
            lab.command(host, [sys.executable, "-m", "tests.lab.peer"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **values},
        )

    def __enter__(self) -> RemotePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def stop(self) -> None:
        """Stop the process; return when none of its threads runs any more."""
        self.child.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.child.pid}/task")
        poll_until("all threads have stopped", lambda: all(_thread_state(task) == "T" for task in tasks.iterdir()))

    def start(self, call: str, *arguments: Any) -> None:
        """Start a call."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps([call, *arguments]).encode() + b"\n")
        self.child.stdin.flush()

    def answer(self, wait_s: float = ANSWER_S) -> Any:
        """Return the answer to the oldest call that has none yet."""
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], wait_s)
        assert ready, f"no answer for {wait_s} s"
        line = self.child.stdout.readline()
        assert line, f"the peer ended: {self.child.poll()}"
        return json.loads(line)

    def call(self, call: str, *arguments: Any) -> Any:
        """Make a call and wait for its answer."""
        self.start(call, *arguments)
        return self.answer()


def connect_peers(receiver: RemotePeer, sender: RemotePeer) -> None:
    """Bring two peers together."""
    handle = receiver.call("listen")
    receiver.start("accept")
    assert sender.call("connect", handle) == 0
    assert receiver.answer() == 0


def transfer_messages(receiver: RemotePeer, sender: RemotePeer, count: int, size: int) -> None:
    """Move messages, and check that every byte is right."""
    receiver.start("transfer", count, size)
    assert sender.call("transfer", count, size) == [0] * count
    assert receiver.answer() == [0] * count
