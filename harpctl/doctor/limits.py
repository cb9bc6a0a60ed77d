"""Checks of what process and kernel allow: the rungs of the driver ladder, memory, socket buffers, files."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from harpctl.change.steps import SetControl
from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import Said, check, fail, skip, warn

SOCKET_BUFFER = 8 << 20  # what the udp driver asks for (plugin/src/io/udp.c)
NOFILE_MIN = 4096
UMEM_BYTES = 64 << 20  # what an AF_XDP rung locks, about
NET = "/proc/sys/net/core"


class Rung(msgspec.Struct, frozen=True):
    """One rung of the ladder: what a driver needs of kernel and process."""

    driver: str
    kernel: tuple[int, int]
    capabilities: tuple[tuple[str, ...], ...]  # one of each group
    why: str  # what the kernel release brought


_XDP_CAPABILITIES = (("cap_net_raw",), ("cap_net_admin",), ("cap_bpf", "cap_sys_admin"))
LADDER = (
    Rung("xdp-zc", (5, 4), _XDP_CAPABILITIES, "AF_XDP with need_wakeup"),
    Rung("xdp-copy", (4, 18), _XDP_CAPABILITIES, "AF_XDP"),
    Rung("udp", (3, 10), (), "sockets"),
)


def kernel_release(context: Context) -> tuple[int, int]:
    """Give major and minor of the kernel; 0.0 when unknown."""
    match = re.match(r"(\d+)\.(\d+)", context.facts.system.kernel)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def lacks(context: Context, rung: Rung) -> list[str]:
    """Say what a rung lacks here; nothing: it can be climbed."""
    limits, release = context.facts.limits, kernel_release(context)
    missing = []
    if release != (0, 0) and release < rung.kernel:
        missing.append(f"Linux {rung.kernel[0]}.{rung.kernel[1]} ({rung.why})")
    have = set(limits.capabilities)
    missing += [" or ".join(group) for group in rung.capabilities if not have & set(group)]
    if rung.capabilities and release < (5, 11) and 0 <= limits.memlock < UMEM_BYTES:
        missing.append(f"RLIMIT_MEMLOCK of {UMEM_BYTES >> 20} MiB")
    return missing


def asked_drivers(context: Context) -> set[str]:
    """Give the drivers that conf files and HARP_DRIVER ask for by name."""
    asked = {conf.driver for _path, conf in context.confs if conf.driver}
    if variable := context.environment.get("HARP_DRIVER"):
        asked = {variable}
    return asked - {"auto"}


@check("limits.driver", "This process may use the driver that is asked for", needs.live)
def check_driver(context: Context) -> Iterator[Said]:
    """Hold each asked-for driver's rung against kernel, capabilities and limits."""
    for driver in sorted(asked_drivers(context)):
        for rung in LADDER:
            if rung.driver in {driver, f"{driver}-copy"} and (missing := lacks(context, rung)):
                yield fail(f"{driver} lacks {', '.join(missing)}.", "docker run --privileged ...")


@check("limits.rungs", "Every rung of the driver ladder can be climbed", needs.live, validates=False)
def check_rungs(context: Context) -> Iterator[Said]:
    """Say what the rungs lack that nobody asks for: the ladder goes on below them."""
    for rung in LADDER:
        if missing := lacks(context, rung):
            yield skip(f"{rung.driver} would lack {', '.join(missing)}.")


@check("limits.gso", "The kernel segments UDP (Linux 4.18) and joins it (5.0)", validates=False)
def check_gso(context: Context) -> Iterator[Said]:
    """Look at the release: without them every packet costs a system call's share."""
    release = kernel_release(context)
    if (0, 0) < release < (5, 0):
        lacking = "UDP_SEGMENT and UDP_GRO" if release < (4, 18) else "UDP_GRO"
        yield warn(f"Linux {context.facts.system.kernel} has no {lacking}.", "use a kernel of 5.0 or newer")


@check("limits.memlock", "Locked memory is not limited", needs.live, validates=False)
def check_memlock(context: Context) -> Iterator[Said]:
    """Look at RLIMIT_MEMLOCK: GPU drivers and the AF_XDP rungs lock memory."""
    limits = context.facts.limits
    if 0 <= limits.memlock < UMEM_BYTES and "cap_ipc_lock" not in limits.capabilities:
        yield warn(
            f"RLIMIT_MEMLOCK is {limits.memlock >> 10} KiB and CAP_IPC_LOCK is missing.",
            "ulimit -l unlimited",
            "docker run --ulimit memlock=-1 ...",
        )


@check("limits.nofile", "Enough files can be open", needs.live, validates=False)
def check_nofile(context: Context) -> Iterator[Said]:
    """Look at RLIMIT_NOFILE: each connection has a control socket beside NCCL's own."""
    nofile = context.facts.limits.nofile
    if 0 <= nofile < NOFILE_MIN:
        yield warn(f"RLIMIT_NOFILE is {nofile}.", "ulimit -n 65536", "docker run --ulimit nofile=65536 ...")


def _buffer(context: Context, name: str) -> Iterator[Said]:
    have = context.host.read_int(f"{NET}/{name}")
    if have < 0 or have >= SOCKET_BUFFER:
        return
    if "cap_net_admin" in context.facts.limits.capabilities:
        return  # it then takes what it asks for, whatever the limit
    step = SetControl(
        path=f"{NET}/{name}", value=str(SOCKET_BUFFER), why="room for a burst in the udp driver"
    )
    yield warn(
        f"net.core.{name} is {have}; without CAP_NET_ADMIN a job's sockets get no more, and bursts are lost.",
        f"sysctl -w net.core.{name}={SOCKET_BUFFER}",
        steps=[step],
    )


@check("limits.rmem", "UDP sockets may have 8 MiB to receive in", needs.live, validates=False)
def check_rmem(context: Context) -> Iterator[Said]:
    """Look at rmem_max, which binds whoever lacks CAP_NET_ADMIN."""
    yield from _buffer(context, "rmem_max")


@check("limits.wmem", "UDP sockets may have 8 MiB to send from", needs.live, validates=False)
def check_wmem(context: Context) -> Iterator[Said]:
    """Look at wmem_max, which binds whoever lacks CAP_NET_ADMIN."""
    yield from _buffer(context, "wmem_max")


@check("limits.root", "Everything could be looked at", validates=False)
def check_root(context: Context) -> Iterator[Said]:
    """Say what this user could not see."""
    if context.is_live and not context.facts.system.is_root:
        yield skip("Without root: other users' files, some routes and hugepages of the host are not seen.")
    for sentence in context.facts.unknown:
        yield skip(sentence)
