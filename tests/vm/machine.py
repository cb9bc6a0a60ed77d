# SPDX-License-Identifier: Apache-2.0
"""A virtual machine in qemu, without KVM: booted from a disk, driven over its second serial line.

Every wait has an end; what the machine wrote to its console is in the error then.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.vm.monitor import Monitor

MEMORY_MIB = 8192
NODES = 2
ENIS = 3
BOOT_TIMEOUT_S = 1800  # without KVM, beside other work
COMMAND_TIMEOUT_S = 300
SCRIPT_BYTES_MAX = 2048  # what the serial line surely takes in one piece
CONSOLE_LINES = 60  # shown when something went wrong


class Result(NamedTuple):
    """The result of a script in the machine."""

    code: int
    text: str


class Shape(NamedTuple):
    """The parts of a machine."""

    memory_mib: int
    nodes: int  # the nodes of NUMA, with an equal part of the memory and one processor each
    network: Sequence[str]  # words of qemu's
    inside: Sequence[str] = ()  # command that runs qemu, in a network namespace for example


def gpu_host() -> Shape:
    """Return the machine that is set up: eth0 has the default route; eth1 and eth2 share a wire."""
    network = ["-netdev", "user,id=net0,restrict=on"]
    network += ["-device", "virtio-net-pci,netdev=net0,mac=52:54:00:00:00:10"]
    for number in range(1, ENIS):
        network += ["-netdev", f"hubport,id=net{number},hubid=1"]
        network += ["-device", f"virtio-net-pci,netdev=net{number},mac=52:54:00:00:00:1{number}"]
    return Shape(MEMORY_MIB, NODES, network)


class Machine:
    """A running machine; its disk is as before afterwards, unless `keep`.

    It boots while the test goes on; the first script waits for it.
    """

    def __init__(
        self,
        disk: Path,
        console: Path,
        *,
        keep: bool = False,
        payload: Path | None = None,
        direct: tuple[str, str, str] | None = None,
        shape: Shape | None = None,
    ) -> None:
        self._console = console
        self._folder = tempfile.TemporaryDirectory(prefix="harp-vm-")
        self._socket_path = Path(self._folder.name) / "agent"
        self._monitor_path = Path(self._folder.name) / "monitor"
        self._argv = self._qemu_command(disk, keep, payload, direct, shape or gpu_host())
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._monitor: Monitor | None = None
        self._is_ready = False
        self._received = b""
        self._count = 0

    def _qemu_command(
        self,
        disk: Path,
        keep: bool,
        payload: Path | None,
        direct: tuple[str, str, str] | None,
        shape: Shape,
    ) -> list[str]:
        argv = [
            *shape.inside,
            "setpriv",
            "--pdeathsig",
            "KILL",
            "qemu-system-x86_64",
            "-nodefaults",
            "-display",
            "none",
            "-accel",
            "tcg,thread=multi",
        ]
        argv += ["-cpu", "max", "-smp", str(shape.nodes), "-m", str(shape.memory_mib)]
        for node in range(shape.nodes):
            size = f"{shape.memory_mib // shape.nodes}M"
            argv += ["-object", f"memory-backend-ram,id=memory{node},size={size}"]
            argv += ["-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}"]
        argv += ["-drive", f"file={disk},if=virtio,format=raw,snapshot={'off' if keep else 'on'}"]
        if payload is not None:
            argv += ["-drive", f"file={payload},if=virtio,format=raw,readonly=on"]
        argv += shape.network
        argv += ["-serial", f"file:{self._console}"]
        argv += [
            "-chardev",
            f"socket,id=agent,path={self._socket_path},server=on,wait=off",
            "-serial",
            "chardev:agent",
        ]
        argv += ["-qmp", f"unix:{self._monitor_path},server=on,wait=off"]
        if direct is not None:
            kernel, initrd, arguments = direct
            argv += ["-kernel", kernel, "-initrd", initrd, "-append", arguments]
        return argv

    def __enter__(self) -> Machine:
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_machine)
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            self._connect_console()
            self._monitor = Monitor(self._monitor_path)  # it answers when all devices are there
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_machine()

    def _end_machine(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._monitor is not None:
            self._monitor.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    def _make_failure(self, what: str) -> AssertionError:
        lines = self._console.read_text(errors="replace").splitlines() if self._console.exists() else []
        end = ""
        if self._process is not None and self._process.poll() is not None and self._process.stderr:
            end = f"\nqemu ended: {self._process.stderr.read().decode(errors='replace')}"
        tail = "\n".join(lines[-CONSOLE_LINES:])
        return AssertionError(f"{what}{end}\nlast of the console ({self._console}):\n{tail}")

    # ---- the serial line ----

    def _connect_console(self) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            line = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                line.connect(str(self._socket_path))
                self._line = line
                return
            line.close()
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise self._make_failure("qemu gives no serial line")

    def _read_line(self, end: float, what: str) -> str:
        assert self._line is not None
        while b"\n" not in self._received:
            left = end - time.monotonic()
            if left <= 0:
                raise self._make_failure(f"{what}: nothing came in time")
            self._line.settimeout(left)
            with contextlib.suppress(TimeoutError):
                data = self._line.recv(65536)
                if not data:
                    raise self._make_failure(f"{what}: qemu is gone")
                self._received += data
        line, _newline, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _wait_for(self, start: str, end: float, what: str) -> str:
        while True:
            line = self._read_line(end, what)
            if line.startswith(start):
                return line.removeprefix(start)

    def _send_script(self, script: str) -> str:
        assert self._line is not None
        if not self._is_ready:
            self._wait_for("READY ", time.monotonic() + BOOT_TIMEOUT_S, "boot")
            self._is_ready = True
        assert len(script) < SCRIPT_BYTES_MAX
        self._count += 1
        self._line.sendall(f"{self._count} {base64.b64encode(script.encode()).decode()}\n".encode())
        return str(self._count)

    # ---- what tests call ----

    def execute(self, script: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Result:
        """Run a shell script as root in the machine; give exit code and output."""
        token = self._send_script(script)
        end = time.monotonic() + timeout_s
        code = int(self._wait_for(f"BEGIN {token} ", end, script))
        data = self._read_line(end, script)
        self._wait_for(f"END {token}", end, script)
        return Result(code, base64.b64decode(data).decode(errors="replace"))

    def run(self, script: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a shell script that must succeed; return its output."""
        result = self.execute(script, timeout_s)
        assert result.code == 0, f"{script}: exit code {result.code}\n{result.text}"
        return result.text

    @property
    def monitor(self) -> Monitor:
        """Return the connection that changes the machine's devices while it runs."""
        assert self._monitor is not None
        return self._monitor

    def reboot(self) -> None:
        """Reboot through firmware and boot loader, and wait until the machine is back."""
        before = self.run("cat /proc/sys/kernel/random/boot_id").strip()
        self._send_script("systemctl reboot")  # it may not live to report its end
        end = time.monotonic() + BOOT_TIMEOUT_S
        while self._wait_for("READY ", end, "reboot") == before:
            pass

    def power_off(self) -> None:
        """Shut the machine down in order, so that its disk is whole."""
        assert self._process is not None
        self._send_script("systemctl poweroff")
        try:
            self._process.wait(BOOT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._make_failure("the machine does not power off") from None
