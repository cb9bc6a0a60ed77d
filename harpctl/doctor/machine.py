# SPDX-License-Identifier: Apache-2.0
"""Probes of the running machine, which change nothing. A directory tree has no Machine.

What could kill or hang this process runs in a child: a hugepage that the cgroup refuses raises
SIGBUS, and a foreign library runs its constructors when it is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import mmap
import os
import resource
import select
import signal
import socket
from collections.abc import Callable, Sequence

from harpctl.doctor.host_clock import ClockState, read_clock
from harpctl.doctor.path_probe import ProbeResult, probe_path
from harpctl.doctor.port_sweep import Sweep, sweep_ports

CHILD_TIMEOUT_S = 20.0
MAP_HUGETLB = 0x40000
MAP_HUGE_SHIFT = 26
MADV_POPULATE_WRITE = 23  # Linux 5.14
ANSWER_BYTES_MAX = 4096


class Machine:
    """The machine we run on; tests have one that answers what they set."""

    def use_page(self, size: int) -> str:
        """Map, populate and release one hugepage of a size; "" when that works, else why not."""
        return in_child(lambda: _use_page(size))

    def load(self, path: str, symbols: tuple[str, ...]) -> str:
        """Load a library and look its symbols up; "" when that works, else why not."""
        return in_child(lambda: _load_library(path, symbols))

    def clock(self) -> ClockState:
        """Return the state of the host's clock."""
        return read_clock()

    def egress(self, source: str, target: str) -> str:
        """Return the interface by which the kernel sends from one address to another; "" when it cannot."""
        from pyroute2 import IPRoute  # noqa: PLC0415 - slow to import, and only asked for here
        from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

        with IPRoute() as kernel:
            try:
                routes = list(kernel.route("get", dst=target, src=source))
            except NetlinkError:
                return ""
            index = routes[0].get_attr("RTA_OIF") if routes else None
        try:
            return socket.if_indextoname(index) if index else ""
        except OSError:
            return ""

    def resolve(self, name: str) -> tuple[tuple[str, ...], str]:
        """Return a peer's addresses, or why there are none."""
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
        except OSError as error:
            return (), error.strerror or str(error)
        return tuple(dict.fromkeys(str(answer[4][0]) for answer in found)), ""

    def probe_path(self, source: str, peer: str, port: int, mtu: int, ports: Sequence[int]) -> ProbeResult:
        """Probe a peer; see path_probe.py."""
        return probe_path(source, peer, port, mtu, ports)

    def sweep_ports(self, source: str, peer: str, port: int, ports: tuple[int, int], within_s: float) -> Sweep:
        """Try all ports of a range; see port_sweep.py."""
        return sweep_ports(source, peer, port, ports, within_s)


def in_child(work: Callable[[], str], timeout_s: float = CHILD_TIMEOUT_S) -> str:
    """Run `work` in a child process and return its answer, or how the child ended instead."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, write_end)
    os.close(write_end)
    answer, is_late = _read_answer(read_end, timeout_s)
    os.close(read_end)
    if is_late:
        os.kill(child, signal.SIGKILL)
    _pid, status = os.waitpid(child, 0)
    if is_late:
        return f"it did not end within {timeout_s:g} s"
    if os.WIFSIGNALED(status):
        return f"it was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return answer.removeprefix("=") if answer.startswith("=") else "it ended without an answer"


def _be_child(work: Callable[[], str], write_end: int) -> None:
    """Answer and end, whatever happens; no handler and no output of the parent's is run or flushed."""
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (0, 1, 2):
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
        os.write(write_end, ("=" + work()).encode("utf-8", "replace")[:ANSWER_BYTES_MAX])
    finally:
        os._exit(0)


def _read_answer(read_end: int, timeout_s: float) -> tuple[str, bool]:
    """Return what the child wrote, at most one write of a pipe's atomic size, and whether it was late."""
    if not select.select([read_end], [], [], timeout_s)[0]:
        return "", True
    return os.read(read_end, ANSWER_BYTES_MAX).decode("utf-8", "replace"), False


def _use_page(size: int) -> str:
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB | (size.bit_length() - 1) << MAP_HUGE_SHIFT
    try:
        page = mmap.mmap(-1, size, flags=flags)
    except OSError as error:
        return f"mmap: {os.strerror(error.errno or 0)}"
    try:
        page.madvise(MADV_POPULATE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            return f"populate: {os.strerror(error.errno or 0)}"
        page[0] = 1  # an older kernel: a page that is refused ends this child with SIGBUS
    return ""


def _load_library(path: str, symbols: tuple[str, ...]) -> str:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        return str(error)
    missing = [symbol for symbol in symbols if not hasattr(library, symbol)]
    return f"it lacks {', '.join(missing)}" if missing else ""
