# SPDX-License-Identifier: Apache-2.0
"""Checks of the packet drivers: what the requested modes need of kernel, process and ENI."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, edit_command, fail, of_link, skip, warn
from harpctl.facts.xdp import ZERO_COPY, is_tried, release_of

LOCKED_BYTES = 64 << 20  # at most, the frames of an ENI's AF_XDP queues (plugin/src/io/xdp/modes.c)
ONE_BUFFER_MTU = 3762  # larger packets span frames
SEVERAL_BUFFERS = (6, 6)  # Linux release


class DriverMode(msgspec.Struct, frozen=True):
    """A driver mode, and what it needs of the kernel and the process."""

    driver: str
    kernel: tuple[int, int]
    why: str  # what that release brought
    capabilities: tuple[tuple[str, ...], ...] = ()  # one of each group


_CAPABILITIES = (("cap_net_raw",), ("cap_net_admin",), ("cap_bpf", "cap_sys_admin"))
MODES = (
    DriverMode("xdp-zc", (5, 9), "links to XDP programs", _CAPABILITIES),
    DriverMode("xdp-copy", (5, 9), "links to XDP programs", _CAPABILITIES),
    DriverMode("udp+tcp", (3, 10), "sockets"),
    DriverMode("udp", (3, 10), "sockets"),
    DriverMode("tcp", (3, 10), "sockets"),
)
MODE_OF = {"xdp": MODES[1], **{mode.driver: mode for mode in MODES}}


def kernel_release(context: Context) -> tuple[int, int]:
    """Return major and minor of the kernel; 0.0 when unknown."""
    return release_of(context.facts.system.kernel)


def lacks_of_mode(context: Context, mode: DriverMode) -> list[str]:
    """Return what a mode lacks here; an empty list: it is available."""
    limits, release = context.facts.limits, kernel_release(context)
    have = set(limits.capabilities or ())
    missing = [" or ".join(group) for group in mode.capabilities if not have & set(group)]
    if (0, 0) < release < mode.kernel:
        missing.append(f"Linux {mode.kernel[0]}.{mode.kernel[1]} ({mode.why})")
    locked = -1 if limits.memlock is None else limits.memlock
    if mode.capabilities and 0 <= locked < LOCKED_BYTES and "cap_ipc_lock" not in have:
        missing.append(f"{LOCKED_BYTES >> 20} MiB of locked memory (ulimit -l)")
    return missing


def configured_drivers(context: Context) -> list[tuple[str, str]]:
    """Return interface and driver of each conf file; HARP_DRIVER takes precedence over the files."""
    variable = context.environment.get("HARP_DRIVER")
    return [(conf.interface, variable or conf.driver or "auto") for _path, conf in context.confs]


def on_xdp(context: Context) -> list[str]:
    """Return the ENIs that AF_XDP is tried on: configured, or chosen by auto."""
    best = {eni.name: eni.xdp for eni in context.enis}
    return [name for name, driver in configured_drivers(context) if is_tried(driver, best.get(name, ""))]


@check("drivers.asked", "This process may use the drivers that are asked for", needs.machine, needs.conf)
def check_requested_drivers(context: Context) -> Iterator[CheckResult]:
    """Compare each driver that is configured by name with kernel, capabilities and limits."""
    for driver in sorted({driver for _name, driver in configured_drivers(context)} & set(MODE_OF)):
        if missing := lacks_of_mode(context, MODE_OF[driver]):
            yield fail(f"{driver} lacks {', '.join(missing)}.", "docker run --privileged ...")


@check("drivers.zero_copy", "Zero-copy is asked for where it is known to work", needs.pair, validates=False)
def check_zero_copy(context: Context) -> Iterator[CheckResult]:
    """Look for xdp-zc on an ENI whose kernel driver is not known for it: init fails without it."""
    drivers = dict(configured_drivers(context))
    for path, _conf, eni in context.pairs:
        if drivers[eni.name] == "xdp-zc" and eni.xdp != ZERO_COPY:
            yield warn(
                f"{path}: {eni.name} ({eni.driver or 'unknown driver'}) is not known for zero-copy AF_XDP.",
                edit_command(path, "--set", "driver=auto"),
            )


@check(
    "drivers.auto",
    "AF_XDP can be used where auto would choose it",
    needs.machine,
    needs.pair,
    validates=False,
)
def check_auto(context: Context) -> Iterator[CheckResult]:
    """Look for ENIs that fall back from zero-copy AF_XDP to sockets because something is missing."""
    missing, drivers = lacks_of_mode(context, MODES[0]), dict(configured_drivers(context))
    falling = [eni.name for eni in context.enis if drivers[eni.name] == "auto" and eni.xdp == ZERO_COPY]
    if missing and falling:
        yield warn(
            f"{', '.join(falling)} could have zero-copy AF_XDP, not sockets: lacking {', '.join(missing)}.",
            "docker run --privileged ...",
        )


@check("drivers.mtu", "AF_XDP takes packets of the whole MTU", needs.pair, validates=False)
def check_mtu(context: Context) -> Iterator[CheckResult]:
    """Look for MTUs that need several buffers per packet, on a kernel that has none."""
    names = on_xdp(context)
    large = [eni.name for eni in context.enis if eni.name in names and eni.mtu > ONE_BUFFER_MTU]
    if large and (0, 0) < kernel_release(context) < SEVERAL_BUFFERS:
        yield warn(
            f"MTUs over {ONE_BUFFER_MTU} need Linux {SEVERAL_BUFFERS[0]}.{SEVERAL_BUFFERS[1]} with AF_XDP:"
            f" {', '.join(large)} cannot have it.",
            *(f"ip link set dev {name} mtu 3498  # on all hosts, or set driver = udp" for name in large),
        )


@check("drivers.program", "No XDP program sits on the ENIs", needs.machine, needs.pair, validates=False)
def check_program(context: Context) -> Iterator[CheckResult]:
    """Look for a program: HARP's own while a job runs, else somebody's, and AF_XDP is refused."""
    for eni in context.enis:
        if eni.xdp_attached:
            yield warn(
                f"An XDP program is attached to {eni.name}: HARP's while a job uses it, else another's."
                " Joining HARP's needs CAP_SYS_ADMIN, and queues that the job does not use (key queues).",
                shlex.join(["bpftool", "net", "show", "dev", eni.name]),
                of_link(eni.name, "xdp", "off"),
            )


@check("drivers.modes", "Every driver mode is available", needs.machine, validates=False)
def check_modes(context: Context) -> Iterator[CheckResult]:
    """Report the modes that are not available, requested or not: the drivers fall back to the others."""
    for mode in MODES:
        if missing := lacks_of_mode(context, mode):
            yield skip(f"{mode.driver} would lack {', '.join(missing)}.")
