"""The lab: hosts made of network namespaces, ENIs made of veth pairs, on one machine.

`Lab` runs a plan (lab_plan.py) as root, and takes everything down again on exit, error and signal. Names hold
the process id, so labs run side by side, and a lab whose process died is swept by the next one.

A namespace takes its TCP congestion control from the machine's first one when it is created, and cannot be
given another later; so the wanted one is set there under a lock while the namespaces are made, then put back.
"""

from __future__ import annotations

import contextlib
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
from types import TracebackType

from harpctl.errors import ExitCode, HarpError
from harpctl.lab.plan import (
    Command,
    LabSpec,
    eni_address,
    eni_name,
    host_names,
    ip_inside,
    plan_destroy,
    plan_namespaces,
    plan_network,
    run_inside,
    tools_needed,
)

SAID_CHARS = 400  # of what a failing tool said
COMMAND_TIMEOUT_S = 30
LINKS_UP_S = 10.0
POLL_S = 0.005
NAME = re.compile(r"^harp(?P<pid>\d+)-(?P<lab>\d+)-(h\d+|fabric|wire)$")
BACKLOG_FILE = Path("/proc/sys/net/core/netdev_max_backlog")
RPS_BACKLOG = 10_000  # packets; with the kernel's 1000 it drops silently what a core gets steered at speed
CONGESTION_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")
LOCK_FILE = Path("/run/harpctl-lab.lock")

Run = Callable[[Command], str]


def run_command(command: Command) -> str:
    """Run one step and give its output; a step that fails becomes a HarpError with what the tool said."""
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
        said = (done.stderr.strip() or done.stdout.strip() or "nothing")[:SAID_CHARS]
        raise HarpError(
            f"Building the lab failed at `{shlex.join(command.argv)}`: {said}",
            "It takes root and a kernel with veth; caps take sch_tbf or sch_htb, loss takes nf_tables.",
        )
    return done.stdout


def require_lab(spec: LabSpec) -> None:
    """Raise the HarpError that says why this machine can't build this lab, if it can't."""
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
            "Install with `./harp_setup build` as root (packages iproute2, nftables, ethtool).",
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
    """Let each core hold that many arriving packets; give what was set before, "" if that was enough."""
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


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Lab:
    """A built lab; a context manager that leaves nothing behind."""

    _numbers = itertools.count()

    def __init__(self, spec: LabSpec, run: Run = run_command) -> None:
        spec.check()
        self.spec = spec
        self.prefix = f"harp{os.getpid()}-{next(self._numbers)}-"
        self.hosts = host_names(spec, self.prefix)
        self.enis = [eni_name(eni) for eni in range(spec.enis)]
        self.notes: list[str] = []
        self._backlog_before = ""
        self._run = run

    def __enter__(self) -> Lab:
        require_lab(self.spec)
        try:
            with _machine_lock():
                self._sweep()
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
            self._destroy()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._destroy()

    def address(self, host: int, eni: int = 0) -> str:
        """Give the address of a host's ENI."""
        return eni_address(host, eni)

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs on that host."""
        return ["ip", "netns", "exec", self.hosts[host], *argv]

    def set_link(self, host: int, eni: int, *, up: bool) -> None:
        """Take a host's ENI down or up again."""
        self._run(ip_inside(self.hosts[host], "link", "set", eni_name(eni), "up" if up else "down"))

    def _wait_links_up(self) -> None:
        """A link's state follows its carrier with a delay, and transports pass over an ENI that is not up."""
        deadline = time.monotonic() + LINKS_UP_S
        for name in self.hosts:
            while True:
                shown = self._run(ip_inside(name, "-oneline", "link", "show", "type", "veth", "up"))
                if shown.count("state UP") == self.spec.enis:
                    break
                if time.monotonic() > deadline:
                    raise HarpError(f"The lab's links did not come up within {LINKS_UP_S} s: {shown.strip()}")
                time.sleep(POLL_S)

    def _check_congestion(self) -> None:
        """A machine that is itself in a namespace has no say in what new ones inherit: then tell."""
        for name in self.hosts:
            got = self._run(run_inside(name, "cat", str(CONGESTION_FILE))).strip()
            if got and got != self.spec.congestion:
                self.notes.append(f"TCP in this lab uses {got}, not {self.spec.congestion}.")
                return

    def _sweep(self) -> None:
        listed = [
            line.split()[0] for line in self._run(Command(("ip", "netns", "list"))).splitlines() if line
        ]
        for name in stale_namespaces(listed, _is_alive):
            with contextlib.suppress(HarpError):
                self._run(Command(("ip", "netns", "delete", name)))

    def _destroy(self) -> None:
        with _signals_held():
            for command in plan_destroy(self.spec, self.prefix):
                self._kill_inside(command.argv[-1])
                with contextlib.suppress(HarpError):
                    self._run(command)
            if self._backlog_before:
                with contextlib.suppress(OSError):
                    BACKLOG_FILE.write_text(self._backlog_before)

    def _kill_inside(self, name: str) -> None:
        """A process that outlives its rank would keep the namespace alive without a name."""
        with contextlib.suppress(HarpError):
            for pid in self._run(Command(("ip", "netns", "pids", name))).split():
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(pid), signal.SIGKILL)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Keep a second Ctrl-C from interrupting the clean-up."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
