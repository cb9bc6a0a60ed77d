"""The lab: hosts made of network namespaces, ENIs made of veth pairs, on one machine.

A plan is data: `plan_build` turns a LabSpec into commands, which tests read and `--show-lab` prints;
`Lab` runs it as root, and takes everything down again on exit, error and signal. Names carry the process id,
so labs run side by side, and a lab whose process died is swept by the next one.

Two hosts are joined by one veth pair per ENI; more hosts by one bridge per ENI in a namespace of their own.
Each ENI is a subnet: 10.77.<eni>.<host + 1>/24.

A namespace takes its TCP congestion control from the machine's first one when it is created, and cannot be
given another later; so the wanted one is set there under a lock while the namespaces are made, then put back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
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

HOSTS_MAX = 64
ENIS_MAX = 16
MTU_MIN_BYTES = 576
MTU_MAX_BYTES = 65535
LOSS_UNITS = 1_000_000  # the firewall draws a number below this; the loss is told in parts of it
TBF_QUEUE_MS = 10
TBF_BURST_MIN_BYTES = 128 * 1024  # two of the largest superframes
FLOW_CLASSES = 256  # classes of the per-flow cap: the low bits of the source port; two flows in one share it
SAID_CHARS = 400  # of what a failing tool said
COMMAND_TIMEOUT_S = 30
LINKS_UP_S = 10.0
POLL_S = 0.005
NAME = re.compile(r"^harp(?P<pid>\d+)-(?P<lab>\d+)-(h\d+|fabric)$")
CONGESTION_FILE = Path("/proc/sys/net/ipv4/tcp_congestion_control")
LOCK_FILE = Path("/run/harpctl-lab.lock")


class Offload(str, enum.Enum):
    """Who cuts superframes into packets, and whether anybody merges them again."""

    STOCK = "stock"  # nobody: veth hands superframes over whole
    SEGMENT = "segment"  # the sender's kernel cuts, the receiver's kernel merges again: like a plain NIC
    OFF = "off"  # the sender's kernel cuts, the receiver gets each packet by itself: loss falls on packets


@dataclasses.dataclass(frozen=True)
class LabSpec:
    """What a lab looks like; fractions of 1 for loss, Mbit/s for rates."""

    hosts: int = 2
    enis: int = 1
    mtu_bytes: int = 1500
    offload: Offload = Offload.STOCK
    cap_mbps: float | None = None
    flow_cap_mbps: float | None = None
    loss: float = 0.0
    congestion: str = "cubic"

    def check(self) -> None:
        """Raise the HarpError that names the first value out of its range."""
        rules = [
            (2 <= self.hosts <= HOSTS_MAX, f"a lab has 2 to {HOSTS_MAX} hosts, not {self.hosts}"),
            (1 <= self.enis <= ENIS_MAX, f"a lab's host has 1 to {ENIS_MAX} ENIs, not {self.enis}"),
            (
                MTU_MIN_BYTES <= self.mtu_bytes <= MTU_MAX_BYTES,
                f"an MTU is {MTU_MIN_BYTES} to {MTU_MAX_BYTES} bytes, not {self.mtu_bytes}",
            ),
            (0.0 <= self.loss < 1.0, f"a loss is 0 up to (not with) 100 %, not {self.loss * 100:g} %"),
            (self.cap_mbps is None or self.cap_mbps >= 1, f"a cap is at least 1 Mbit/s, not {self.cap_mbps}"),
            (
                self.flow_cap_mbps is None or self.flow_cap_mbps >= 1,
                f"a flow's cap is at least 1 Mbit/s, not {self.flow_cap_mbps}",
            ),
            (
                self.cap_mbps is None or self.flow_cap_mbps is None,
                "an ENI is capped as a whole or per flow, not both",
            ),
        ]
        for holds, message in rules:
            if not holds:
                raise HarpError(f"{message}.", exit_code=ExitCode.USAGE)

    def describe(self) -> str:
        """Say in one line what the lab is, for the head of a table."""
        eni = "1 ENI" if self.enis == 1 else f"{self.enis} ENIs"
        parts = [
            f"{self.hosts} hosts",
            f"{eni} each",
            f"MTU {self.mtu_bytes}",
            f"offload {self.offload.value}",
        ]
        if self.cap_mbps is not None:
            parts.append(f"cap {self.cap_mbps:g} Mbit/s per ENI")
        if self.flow_cap_mbps is not None:
            parts.append(f"cap {self.flow_cap_mbps:g} Mbit/s per flow")
        if self.loss:
            unit = "packets" if self.offload is Offload.OFF else "superframes"
            parts.append(f"loss {self.loss * 100:g} % of {unit}")
        parts.append(self.congestion)
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Command:
    """One step of a plan: a command with what it reads on its standard input."""

    argv: tuple[str, ...]
    stdin: str = ""

    def __str__(self) -> str:
        line = shlex.join(self.argv)
        return f"{line} <<'END'\n{self.stdin}END" if self.stdin else line


def eni_name(eni: int) -> str:
    """Name an ENI inside its host."""
    return f"eni{eni}"


def eni_address(host: int, eni: int) -> str:
    """Give the IPv4 address of a host's ENI."""
    return f"10.77.{eni}.{host + 1}"


def host_names(spec: LabSpec, prefix: str) -> list[str]:
    """List the namespaces that stand for hosts."""
    return [f"{prefix}h{host}" for host in range(spec.hosts)]


def namespaces(spec: LabSpec, prefix: str) -> list[str]:
    """List every namespace of the lab, hosts first."""
    fabric = [f"{prefix}fabric"] if spec.hosts > 2 else []
    return host_names(spec, prefix) + fabric


def tools_needed(spec: LabSpec) -> list[str]:
    """List the programs that building this lab runs."""
    tools = ["ip"]
    if spec.cap_mbps is not None or spec.flow_cap_mbps is not None:
        tools.append("tc")
    if spec.loss or spec.flow_cap_mbps is not None:
        tools.append("nft")
    if spec.offload is not Offload.STOCK:
        tools.append("ethtool")
    return tools


def plan_namespaces(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the part that has to happen while the machine's congestion control is the wanted one."""
    return [Command(("ip", "netns", "add", name)) for name in namespaces(spec, prefix)]


def plan_network(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan links, addresses, offloads, caps and loss inside namespaces that exist."""
    spec.check()
    plan = [_ip(name, "link", "set", "lo", "up") for name in namespaces(spec, prefix)]
    for eni in range(spec.enis):
        plan += _plan_links(spec, prefix, eni)
    for host, name in enumerate(host_names(spec, prefix)):
        for eni in range(spec.enis):
            plan += _plan_eni(spec, name, host, eni)
        if spec.loss:
            plan.append(_plan_loss(spec, name))
    return plan


def plan_build(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the whole lab."""
    return plan_namespaces(spec, prefix) + plan_network(spec, prefix)


def plan_destroy(spec: LabSpec, prefix: str) -> list[Command]:
    """Plan the end: links and rules go with their namespaces."""
    return [Command(("ip", "netns", "delete", name)) for name in namespaces(spec, prefix)]


def _ip(namespace: str, *words: str) -> Command:
    return Command(("ip", "-netns", namespace, *words))


def _inside(namespace: str, *words: str, stdin: str = "") -> Command:
    return Command(("ip", "netns", "exec", namespace, *words), stdin)


def _plan_links(spec: LabSpec, prefix: str, eni: int) -> list[Command]:
    hosts, name = host_names(spec, prefix), eni_name(eni)
    if spec.hosts == 2:
        pair = ("link", "add", name, "type", "veth", "peer", "name", name, "netns", hosts[1])
        return [_ip(hosts[0], *pair)]
    fabric, bridge = f"{prefix}fabric", f"br{eni}"
    plan = [
        _ip(fabric, "link", "add", bridge, "type", "bridge"),
        _ip(fabric, "link", "set", bridge, "mtu", str(spec.mtu_bytes), "up"),
    ]
    for host, namespace in enumerate(hosts):
        port = f"h{host}{name}"
        plan += [
            _ip(namespace, "link", "add", name, "type", "veth", "peer", "name", port, "netns", fabric),
            _ip(fabric, "link", "set", port, "mtu", str(spec.mtu_bytes), "master", bridge, "up"),
        ]
    return plan


def _plan_eni(spec: LabSpec, namespace: str, host: int, eni: int) -> list[Command]:
    name = eni_name(eni)
    plan = [
        _ip(namespace, "address", "add", f"{eni_address(host, eni)}/24", "dev", name),
        _ip(namespace, "link", "set", name, "mtu", str(spec.mtu_bytes), "up"),
    ]
    if spec.offload is not Offload.STOCK:
        gro = "on" if spec.offload is Offload.SEGMENT else "off"
        words = ("tso", "off", "gso", "off", "tx-udp-segmentation", "off", "gro", gro)
        plan.append(_inside(namespace, "ethtool", "-K", name, *words))
    if spec.cap_mbps is not None:
        burst_bytes = max(TBF_BURST_MIN_BYTES, int(spec.cap_mbps * 1e6 / 8 / 1000))
        rate = ("rate", f"{spec.cap_mbps:g}mbit", "burst", str(burst_bytes), "latency", f"{TBF_QUEUE_MS}ms")
        plan.append(Command(("tc", "-netns", namespace, "qdisc", "add", "dev", name, "root", "tbf", *rate)))
    if spec.flow_cap_mbps is not None:
        plan += _plan_flow_cap(spec.flow_cap_mbps, namespace, name)
    return plan


def _plan_flow_cap(cap_mbps: float, namespace: str, name: str) -> list[Command]:
    """One class per bucket of source ports, as a cloud polices each flow by itself."""
    lines = [f"qdisc add dev {name} root handle 1: htb default 1"]
    burst_bytes = max(TBF_BURST_MIN_BYTES, int(cap_mbps * 1e6 / 8 / 1000))
    for bucket in range(FLOW_CLASSES):
        rate = f"rate {cap_mbps:g}mbit burst {burst_bytes} cburst {burst_bytes} quantum 65536"
        lines.append(f"class add dev {name} parent 1: classid 1:{bucket + 1:x} htb {rate}")
    buckets = ", ".join(f"{bucket} : 1:{bucket + 1:x}" for bucket in range(FLOW_CLASSES))
    bucket_of = f"th sport and {FLOW_CLASSES - 1} map {{ {buckets} }}"
    rules = (
        f"table netdev harp_flow_{name} {{\n"
        f"  chain flows {{\n"
        f'    type filter hook egress device "{name}" priority 0; policy accept;\n'
        f"    meta l4proto {{ tcp, udp }} meta priority set {bucket_of}\n"
        "  }\n}\n"
    )
    return [
        Command(("tc", "-netns", namespace, "-batch", "-"), "\n".join(lines) + "\n"),
        _inside(namespace, "nft", "-f", "-", stdin=rules),
    ]


def _plan_loss(spec: LabSpec, namespace: str) -> Command:
    """Drop arriving packets at random; neighbour discovery is spared, or a lost ARP would be the result."""
    chains, drawn = "", f"numgen random mod {LOSS_UNITS} < {round(spec.loss * LOSS_UNITS)}"
    for eni in range(spec.enis):
        name = eni_name(eni)
        chains += (
            f"  chain loss_{name} {{\n"
            f'    type filter hook ingress device "{name}" priority 0; policy accept;\n'
            f"    meta l4proto {{ tcp, udp }} {drawn} counter drop\n"
            "  }\n"
        )
    return _inside(namespace, "nft", "-f", "-", stdin=f"table netdev harp_loss {{\n{chains}}}\n")


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
        self._run = run

    def __enter__(self) -> Lab:
        require_lab(self.spec)
        try:
            with _machine_lock():
                self._sweep()
                with _congestion_control(self.spec.congestion):
                    for command in plan_namespaces(self.spec, self.prefix):
                        self._run(command)
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
        self._run(_ip(self.hosts[host], "link", "set", eni_name(eni), "up" if up else "down"))

    def _wait_links_up(self) -> None:
        """A link's state follows its carrier with a delay, and transports pass over an ENI that is not up."""
        deadline = time.monotonic() + LINKS_UP_S
        for name in self.hosts:
            while True:
                shown = self._run(_ip(name, "-oneline", "link", "show", "type", "veth", "up"))
                if shown.count("state UP") == self.spec.enis:
                    break
                if time.monotonic() > deadline:
                    raise HarpError(f"The lab's links did not come up within {LINKS_UP_S} s: {shown.strip()}")
                time.sleep(POLL_S)

    def _check_congestion(self) -> None:
        """A machine that is itself in a namespace has no say in what new ones inherit: then tell."""
        for name in self.hosts:
            got = self._run(_inside(name, "cat", str(CONGESTION_FILE))).strip()
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
