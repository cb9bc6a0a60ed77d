# SPDX-License-Identifier: Apache-2.0
"""The monitor of a qemu: what a host does to a machine from outside, by qemu's machine protocol (QMP)."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any

ANSWER_S = 60.0  # qemu answers at once, on a busy host later
POLL_S = 0.05


class Monitor:
    """A connection to a qemu that was started with `-qmp unix:PATH,server=on,wait=off`."""

    def __init__(self, path: Path) -> None:
        self._received = b""
        self._events: list[dict[str, Any]] = []
        self._line = self._connect_socket(path, time.monotonic() + ANSWER_S)
        self._next_message(time.monotonic() + ANSWER_S)  # its greeting
        self.execute("qmp_capabilities")

    @staticmethod
    def _connect_socket(path: Path, end: float) -> socket.socket:
        while True:
            line = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                line.connect(str(path))
                return line
            line.close()
            assert time.monotonic() < end, "qemu gives no monitor"
            time.sleep(POLL_S)

    def _next_message(self, end: float) -> dict[str, Any]:
        while b"\n" not in self._received:
            self._line.settimeout(max(end - time.monotonic(), 0.001))
            data = self._line.recv(65536)
            assert data, "qemu is gone"
            self._received += data
        line, _newline, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def execute(self, command: str, **arguments: object) -> None:
        """Have a command carried out; fail where qemu refuses it."""
        self._line.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        end = time.monotonic() + ANSWER_S
        while True:
            message = self._next_message(end)
            assert "error" not in message, f"{command} {arguments}: {message['error']['desc']}"
            if "return" in message:
                return
            self._events.append(message)

    def wait_for(self, event: str, device: str, timeout_s: float = ANSWER_S) -> None:
        """Wait until qemu has reported this of a device, since the monitor was opened."""
        end = time.monotonic() + timeout_s
        while not any(e["event"] == event and e["data"].get("device") == device for e in self._events):
            self._events.append(self._next_message(end))
        self._events.clear()

    def close(self) -> None:
        """Hang up; the machine goes on."""
        self._line.close()
