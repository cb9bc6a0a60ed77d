# SPDX-License-Identifier: Apache-2.0
"""The lab: hosts made of network namespaces, ENIs made of veth pairs, on one machine.

`Lab` runs a plan (plan.py) as root, and takes everything down again on exit, error and signal. Names hold
the process id, so labs run side by side, and the next one removes a lab whose process died. A lab with a
prefix of its own stays (persistent.py). While it stands its links, caps and faults may be changed.

A namespace takes its TCP congestion control from the machine's first one when it is created, and cannot be
given another later; so the wanted one is set there under a lock while the namespaces are made, then put back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError
from harplab.lab.caps import plan_caps, plan_uncap
from harplab.lab.commands import Command, Run, ip_inside, run_inside
from harplab.lab.counts import read_counts
from harplab.lab.faults import Faults
from harplab.lab.plan import plan_destroy, plan_namespaces, plan_network, tools_needed
from harplab.lab.privileges import unprivileged_words
from harplab.lab.routes import address_words, plan_reroute
from harplab.lab.spec import LabSpec, eni_address, eni_name, fabric_name, host_names, port_name
from harplab.perf.counts import PacketCounts

OUTPUT_CHARS = 400  # the most of a failing tool's output
COMMAND_TIMEOUT_S = 120  # the kernel may take half a minute for a filter beside ranks that poll
LINKS_UP_S = 10.0
POLL_S = 0.005
NAME = re.compile(r"^(?P<folder>harp(?P<pid>\d+)-\d+)-(h\d+|fabric)$")
RUN_DIR = Path("/run/harp-lab")  # has a folder per lab with faults
BACKLOG_FILE = Path("/proc/sys/net/core/netdev_max_backlog")
RPS_BACKLOG = 10_000  # packets; with the kernel's 1000 it drops silently what a core gets steered at speed
CONGESTION_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")
LOCK_FILE = Path("/run/harpctl-lab.lock")


def run_command(command: Command) -> str:
    """Run one step and return its output; raise HarpError with the tool's output for a step that fails."""
    try:
        done = subprocess.run(
            command.argv,
            input=command.stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise HarpError(
            f"The lab needs the program {command.argv[0]!r}.",
            "Install it with `./harp_setup build` as root, or with the system's package manager.",
            ExitCode.MISSING,
        ) from None
    except subprocess.TimeoutExpired:
        raise HarpError(f"`{shlex.join(command.argv)}` took longer than {COMMAND_TIMEOUT_S} s.") from None
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip() or "nothing")[:OUTPUT_CHARS]
        raise HarpError(
            f"The lab failed at `{shlex.join(command.argv)}`: {output}",
            "It takes root and a kernel with veth; caps take sch_tbf or sch_htb, loss takes nf_tables.",
        )
    return done.stdout


def require_proc(file: Path = CONGESTION_FILE) -> None:
    """Raise HarpError where /proc is not mounted, as in a plain chroot: labs and measurements read it."""
    if not file.exists():
        raise HarpError("/proc is not mounted here.", "Mount it: `mount -t proc proc /proc`.", ExitCode.MISSING)


def require_lab(spec: LabSpec) -> None:
    """Raise HarpError where this machine can't build this lab."""
    require_proc()
    if os.geteuid() != 0:
        raise HarpError(
            "A lab of network namespaces needs root.",
            "Run it with sudo, or without a lab over loopback: `harpctl bench --loopback`.",
            ExitCode.REFUSED,
        )
    missing = [tool for tool in tools_needed(spec) if shutil.which(tool) is None]
    if missing:
        raise HarpError(
            f"The lab needs {', '.join(missing)}, which this machine lacks.",
            "Install with `./harp_setup build` as root (packages iproute2, nftables, ethtool, util-linux).",
            ExitCode.MISSING,
        )


@contextlib.contextmanager
def _machine_lock() -> Iterator[None]:
    with LOCK_FILE.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _congestion_control(wanted: str, file: Path = CONGESTION_FILE) -> Iterator[None]:
    """Make new namespaces inherit this TCP congestion control; the caller holds the machine's lock."""
    before = file.read_text().strip()
    if before == wanted:
        yield
        return
    try:
        file.write_text(wanted)
    except OSError as error:
        raise HarpError(
            f"The TCP congestion control {wanted!r} can't be set: {error.strerror}.",
            f"Load it with `modprobe tcp_{wanted}`, or choose another with --congestion.",
        ) from None
    try:
        yield
    finally:
        file.write_text(before)


def raise_backlog(least: int, file: Path = BACKLOG_FILE) -> str:
    """Let each core hold that many arriving packets; return what was set before, "" if that was enough."""
    before = file.read_text().strip()
    if int(before) >= least:
        return ""
    try:
        file.write_text(f"{least}\n")
    except OSError as error:
        raise HarpError(
            f"The cores' backlog ({file}) can't be raised to {least} packets: {error.strerror}.",
            "Steering arriving packets takes root in the machine's first namespace.",
        ) from None
    return before


def stale_namespaces(names: Sequence[str], is_alive: Callable[[int], bool]) -> list[str]:
    """Pick the namespaces whose lab's process is gone."""
    found = ((name, NAME.match(name)) for name in names)
    return [name for name, match in found if match and not is_alive(int(match["pid"]))]


def namespaces_there(run: Run = run_command) -> list[str]:
    """Return the named namespaces of the machine."""
    return [line.split()[0] for line in run(Command(("ip", "netns", "list"))).splitlines() if line.strip()]


def remove_namespace(name: str, run: Run = run_command) -> None:
    """Delete a namespace and end its processes: one that outlives it would keep it alive without a name."""
    with contextlib.suppress(HarpError):
        for pid in run(Command(("ip", "netns", "pids", name))).split():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(HarpError):
        run(Command(("ip", "netns", "delete", name)))


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Lab:
    """A built lab; a context manager that leaves nothing behind."""

    _numbers = itertools.count()

    def __init__(self, spec: LabSpec, run: Run = run_command, prefix: str = "") -> None:
        spec.check()
        self.spec = spec
        self.prefix = prefix or f"harp{os.getpid()}-{next(self._numbers)}-"
        self.hosts = host_names(spec, self.prefix)
        self.enis = [eni_name(eni) for eni in range(spec.enis)]
        self.notes: list[str] = []
        self._backlog_before = ""
        self._run = run

    def __enter__(self) -> Lab:
        self.build()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def build(self) -> None:
        """Make it; what fails or is interrupted leaves nothing behind."""
        require_lab(self.spec)
        try:
            with _machine_lock():
                self._remove_stale()
                with _congestion_control(self.spec.congestion):
                    for command in plan_namespaces(self.spec, self.prefix):
                        self._run(command)
            if self.spec.rps_cores:
                self._backlog_before = raise_backlog(RPS_BACKLOG)
            for command in plan_network(self.spec, self.prefix):
                self._run(command)
            self._wait_links_up()
            self._check_congestion()
        except BaseException:
            self.destroy()
            raise

    def destroy(self) -> None:
        """Take down what there is of it, with the processes in it."""
        with _signals_held():
            for command in plan_destroy(self.spec, self.prefix):
                remove_namespace(command.argv[-1], self._run)
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                RUN_DIR.rmdir()
            if self._backlog_before:
                with contextlib.suppress(OSError):
                    BACKLOG_FILE.write_text(self._backlog_before)

    def address(self, host: int, eni: int = 0) -> str:
        """Return the address of a host's ENI."""
        return eni_address(host, eni)

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs on that host, with the privileges that the lab has."""
        words = unprivileged_words() if self.spec.unprivileged else []
        return ["ip", "netns", "exec", self.hosts[host], *words, *argv]

    def packet_counts(self) -> PacketCounts:
        """Read how many packets the network was given, and how many it dropped."""
        return read_counts(self.spec, self.prefix, self._run)

    # ---- changes while it stands ----

    def faults(self, host: int, eni: int = 0) -> Faults:
        """Return the faults of a host's ENI."""
        self._check_eni(host, eni)
        return Faults(self.spec, self.prefix, self._run, self._folder, host, eni)

    def set_link(self, host: int, eni: int, *, up: bool) -> None:
        """Take a host's ENI down or up again, as its administrator does."""
        self._check_eni(host, eni)
        self._run(ip_inside(self.hosts[host], "link", "set", eni_name(eni), "up" if up else "down"))
        if up:
            self._restore_routes(host, eni)

    def link_down(self, host: int, eni: int = 0) -> None:
        """Take a host's ENI down; its address stays, its routes go."""
        self.set_link(host, eni, up=False)

    def link_up(self, host: int, eni: int = 0) -> None:
        """Bring it up again, with its routes."""
        self.set_link(host, eni, up=True)

    def unplug(self, host: int, eni: int = 0) -> None:
        """Pull its cable: the ENI stays up and loses its carrier. Takes a switch."""
        self._set_port(host, eni, "down")

    def plug(self, host: int, eni: int = 0) -> None:
        """Put the cable in again."""
        self._set_port(host, eni, "up")

    def set_mtu(self, host: int, eni: int, mtu_bytes: int) -> None:
        """Set the MTU of the host's interface; what the network carries is shrunk by faults().shrink_mtu."""
        self._check_eni(host, eni)
        self._run(ip_inside(self.hosts[host], "link", "set", eni_name(eni), "mtu", str(mtu_bytes)))

    def remove_address(self, host: int, eni: int = 0) -> None:
        """Take the address of a host's ENI away."""
        self._check_eni(host, eni)
        _, _, address, *rest = address_words(self.spec, host, eni)
        self._run(ip_inside(self.hosts[host], "address", "del", address, *rest))

    def add_address(self, host: int, eni: int = 0) -> None:
        """Restore the address of a host's ENI, with its routes; nothing happens where it is there."""
        self._check_eni(host, eni)
        _, _, *rest = address_words(self.spec, host, eni)
        self._run(ip_inside(self.hosts[host], "address", "replace", *rest))
        self._restore_routes(host, eni)

    def cap(self, host: int, eni: int, cap_mbps: float | None) -> None:
        """Set the cap of an ENI, None for none, in both directions; flows keep theirs, the queue is lost."""
        self._check_eni(host, eni)
        if cap_mbps is not None:
            dataclasses.replace(self.spec, cap_mbps=cap_mbps).check()
        for command in plan_uncap(self.spec, self.prefix, host, eni):
            with contextlib.suppress(HarpError):
                self._run(command)
        for command in plan_caps(self.spec, self.prefix, host, eni, cap_mbps):
            self._run(command)

    def restore(self, host: int, eni: int) -> None:
        """Undo all that was changed of an ENI since the lab was built."""
        self.faults(host, eni).clear()
        if self.spec.has_fabric:
            self.plug(host, eni)
        self.set_mtu(host, eni, self.spec.mtu_bytes)
        self.link_up(host, eni)
        self.add_address(host, eni)
        self.cap(host, eni, self.spec.cap_of(eni))

    @property
    def _folder(self) -> Path:
        return RUN_DIR / self.prefix.rstrip("-")

    def _check_eni(self, host: int, eni: int) -> None:
        if not 0 <= host < self.spec.hosts:
            raise HarpError(
                f"The lab has no host {host}.", f"Its hosts are 0 to {self.spec.hosts - 1}.", ExitCode.USAGE
            )
        if not 0 <= eni < self.spec.eni_count(host):
            raise HarpError(
                f"Host {host} has no ENI {eni}.",
                f"Its ENIs are 0 to {self.spec.eni_count(host) - 1}.",
                ExitCode.USAGE,
            )

    def _set_port(self, host: int, eni: int, state: str) -> None:
        self._check_eni(host, eni)
        if not self.spec.has_fabric:
            raise HarpError(
                "A cable can be pulled only where a switch joins the hosts.",
                "Make the lab with a switch, or take the link down.",
                ExitCode.USAGE,
            )
        port = port_name(host, eni_name(eni))
        self._run(ip_inside(fabric_name(self.prefix), "link", "set", port, state))

    def _restore_routes(self, host: int, eni: int) -> None:
        for command in plan_reroute(self.spec, self.hosts[host], host, eni):
            self._run(command)

    def _wait_links_up(self) -> None:
        """A link's state follows its carrier with a delay, and transports pass over an ENI that is not up."""
        deadline = time.monotonic() + LINKS_UP_S
        for host, name in enumerate(self.hosts):
            while True:
                shown = self._run(ip_inside(name, "-oneline", "link", "show", "type", "veth", "up"))
                if shown.count("state UP") == self.spec.eni_count(host):
                    break
                if time.monotonic() > deadline:
                    raise HarpError(f"The lab's links did not come up within {LINKS_UP_S} s: {shown.strip()}")
                time.sleep(POLL_S)

    def _check_congestion(self) -> None:
        """Add a note where hosts have another congestion control.

        A machine that is itself in a namespace can't set what new namespaces inherit.
        """
        for name in self.hosts:
            got = self._run(run_inside(name, "cat", str(CONGESTION_FILE))).strip()
            if got and got != self.spec.congestion:
                self.notes.append(f"TCP in this lab uses {got}, not {self.spec.congestion}.")
                return

    def _remove_stale(self) -> None:
        for name in stale_namespaces(namespaces_there(self._run), _is_alive):
            remove_namespace(name, self._run)
            if found := NAME.match(name):
                shutil.rmtree(RUN_DIR / found["folder"], ignore_errors=True)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Keep a second Ctrl-C from interrupting the clean-up."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
