# SPDX-License-Identifier: Apache-2.0
"""Checks of what process and kernel allow: memory, socket buffers, files, segmentation."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from harpctl.change.steps import SetControl
from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.drivers import kernel_release
from harpctl.doctor.model import CheckResult, check, skip, warn

SOCKET_BUFFER = 8 << 20  # what the udp driver requests (plugin/src/io/udp_socket.c)
TCP_BUFFER_MIN = 2 << 20  # bytes: 25 Gbit/s for 300 us, and as much again for what the kernel adds
TCP_BUFFERS = {"tcp_rmem": "4096 131072 6291456", "tcp_wmem": "4096 16384 4194304"}  # Linux's defaults
# 256 peers over 8 interfaces take HARP 25 + 9 * 256 files; NCCL and the program the rest.
NOFILE_MIN = 4096
MEMLOCK_MIN = 64 << 20  # bytes
NET = "/proc/sys/net/core"
IPV4 = "/proc/sys/net/ipv4"


@check("limits.gso", "The kernel segments UDP (Linux 4.18) and joins it (5.0)", validates=False)
def check_gso(context: Context) -> Iterator[CheckResult]:
    """Look at the release: without them every packet costs a system call's share."""
    release = kernel_release(context)
    if (0, 0) < release < (5, 0):
        lacking = "UDP_SEGMENT and UDP_GRO" if release < (4, 18) else "UDP_GRO"
        yield warn(f"Linux {context.facts.system.kernel} has no {lacking}.", "use a kernel of 5.0 or newer")


def _command_to_raise(context: Context, of_shell: str, of_docker: str) -> str:
    """Return what raises a limit where it is set: by the container's manager, else in the job's shell."""
    in_container = bool(context.facts.system.container)
    return f"docker run --ulimit {of_docker} ..." if in_container else f"ulimit {of_shell}"


@check("limits.memlock", "Locked memory is not limited", needs.machine, validates=False)
def check_memlock(context: Context) -> Iterator[CheckResult]:
    """Look at RLIMIT_MEMLOCK: GPU drivers and AF_XDP lock memory."""
    limits = context.facts.limits
    have = limits.capabilities or ()
    if limits.memlock is not None and 0 <= limits.memlock < MEMLOCK_MIN and "cap_ipc_lock" not in have:
        yield warn(
            f"RLIMIT_MEMLOCK is {limits.memlock >> 10} KiB and CAP_IPC_LOCK is missing.",
            _command_to_raise(context, "-l unlimited", "memlock=-1"),
        )


@check("limits.nofile", "Enough files can be open", needs.machine, validates=False)
def check_nofile(context: Context) -> Iterator[CheckResult]:
    """Look at RLIMIT_NOFILE: each connection has a control socket beside NCCL's own."""
    nofile = context.facts.limits.nofile
    if nofile is not None and 0 <= nofile < NOFILE_MIN:
        yield warn(f"RLIMIT_NOFILE is {nofile}.", _command_to_raise(context, "-n 65536", "nofile=65536"))


def _check_buffer(context: Context, name: str) -> Iterator[CheckResult]:
    """Look at a limit that binds whoever lacks CAP_NET_ADMIN."""
    have = context.host.read_int(f"{NET}/{name}")
    if have < 0 or have >= SOCKET_BUFFER:
        return
    if "cap_net_admin" in (context.facts.limits.capabilities or ()):
        return  # it then takes what it requests, whatever the limit
    step = SetControl(path=f"{NET}/{name}", value=str(SOCKET_BUFFER), why="room for a burst in the udp driver")
    yield warn(
        f"net.core.{name} is {have}; without CAP_NET_ADMIN a job's sockets get no more, and bursts are lost.",
        f"sysctl -w net.core.{name}={SOCKET_BUFFER}",
        steps=() if context.facts.system.container else [step],
    )


for _way, _name in (("receive in", "rmem_max"), ("send from", "wmem_max")):
    _enter = check(f"limits.{_name[:4]}", f"UDP sockets may have 8 MiB to {_way}", needs.machine, validates=False)
    _enter(functools.partial(_check_buffer, name=_name))


@check("limits.tcp", "TCP sockets may have 2 MiB, each way", needs.machine, validates=False)
def check_tcp(context: Context) -> Iterator[CheckResult]:
    """Look at the last numbers of tcp_rmem and tcp_wmem: what is in flight is no more than that."""
    for name, usual in TCP_BUFFERS.items():
        words = context.host.read_word(f"{IPV4}/{name}").split()
        most = int(words[-1]) if words and words[-1].isdigit() else TCP_BUFFER_MIN
        if most < TCP_BUFFER_MIN:
            yield warn(
                f"net.ipv4.{name} allows {most >> 10} KiB: TCP, HARP's and NCCL's own, is slow.",
                f"sysctl -w net.ipv4.{name}='{usual}'",
            )


@check("limits.root", "All facts could be read", validates=False)
def check_root(context: Context) -> Iterator[CheckResult]:
    """Report that some facts need root."""
    if context.is_running and not context.facts.system.is_root:
        yield skip("Without root: other users' files, some routes and hugepages of the host are not seen.")
    for sentence in context.facts.unknown:
        yield skip(sentence)
