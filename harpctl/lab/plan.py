"""What a lab looks like and the commands that make it: data and pure functions, nothing is run here.

Two hosts are joined by one veth pair per ENI; more hosts, or two with a switch, by one bridge per ENI in a
namespace of their own.
Each ENI is a subnet: 10.77.<eni>.<host + 1>/24.
"""

from __future__ import annotations

import dataclasses
import enum
import shlex

from harpctl.errors import ExitCode, HarpError

HOSTS_MAX = 64
ENIS_MAX = 16
QUEUES_MAX = 16
MTU_MIN_BYTES = 576
MTU_MAX_BYTES = 65535
LOSS_UNITS = 1_000_000  # the firewall draws a number below this; the loss is told in parts of it
TBF_QUEUE_MS = 10
TBF_BURST_MIN_BYTES = 128 * 1024  # two of the largest superframes
RPS_CORES_MAX = 32  # what one word of rps_cpus can say
FLOW_CLASSES = 256  # classes of the per-flow cap: the low bits of the source port; two flows in one share it


class Offload(str, enum.Enum):
    """Who cuts superframes into packets, and whether anybody merges them again."""

    STOCK = "stock"  # nobody: veth hands superframes over whole
    SEGMENT = "segment"  # the sender's kernel cuts, the receiver's kernel merges again: like a plain NIC
    OFF = "off"  # the sender's kernel cuts, the receiver gets each packet by itself: loss falls on packets


@dataclasses.dataclass(frozen=True)
class LabSpec:
    """What a lab looks like; fractions of 1 for loss, Mbit/s for rates.

    With `rps_cores`, what arrives on host i's ENIs is handled on core i modulo that number (receive packet
    steering), as after a NIC's interrupt; without, on the sender's core, inside its system call.
    """

    hosts: int = 2
    enis: int = 1
    mtu_bytes: int = 1500
    offload: Offload = Offload.STOCK
    cap_mbps: float | None = None
    flow_cap_mbps: float | None = None
    loss: float = 0.0
    congestion: str = "cubic"
    switch: bool = False
    queues: int = 1
    rps_cores: int = 0

    @property
    def has_fabric(self) -> bool:
        """Whether bridges join the hosts."""
        return self.switch or self.hosts > 2

    def check(self) -> None:
        """Raise the HarpError that names the first value out of its range."""
        rules = [
            (2 <= self.hosts <= HOSTS_MAX, f"a lab has 2 to {HOSTS_MAX} hosts, not {self.hosts}"),
            (1 <= self.enis <= ENIS_MAX, f"a lab's host has 1 to {ENIS_MAX} ENIs, not {self.enis}"),
            (
                MTU_MIN_BYTES <= self.mtu_bytes <= MTU_MAX_BYTES,
                f"an MTU is {MTU_MIN_BYTES} to {MTU_MAX_BYTES} bytes, not {self.mtu_bytes}",
            ),
            (
                1 <= self.queues <= QUEUES_MAX and (self.queues == 1 or not self.has_fabric),
                f"an ENI has 1 to {QUEUES_MAX} queues, not {self.queues}; 1 where a fabric joins the hosts",
            ),
            (
                0 <= self.rps_cores <= RPS_CORES_MAX,
                f"arriving packets are steered to 1 to {RPS_CORES_MAX} cores, not {self.rps_cores}",
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
        if self.rps_cores:
            parts.append(f"RPS over {self.rps_cores} cores")
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


def fabric_name(prefix: str) -> str:
    """Name the namespace of the bridges."""
    return f"{prefix}fabric"


def port_name(host: int, ifname: str) -> str:
    """Name the port of the fabric that leads to a host's ENI."""
    return f"h{host}{ifname}"


def namespaces(spec: LabSpec, prefix: str) -> list[str]:
    """List every namespace of the lab, hosts first."""
    return host_names(spec, prefix) + ([fabric_name(prefix)] if spec.has_fabric else [])


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
    plan = [ip_inside(name, "link", "set", "lo", "up") for name in namespaces(spec, prefix)]
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


def ip_inside(namespace: str, *words: str) -> Command:
    """Make a command of the ip tool for a namespace."""
    return Command(("ip", "-netns", namespace, *words))


def run_inside(namespace: str, *words: str, stdin: str = "") -> Command:
    """Make a command that runs inside a namespace."""
    return Command(("ip", "netns", "exec", namespace, *words), stdin)


def _plan_links(spec: LabSpec, prefix: str, eni: int) -> list[Command]:
    hosts, name = host_names(spec, prefix), eni_name(eni)
    if not spec.has_fabric:
        queues = ("numrxqueues", str(spec.queues), "numtxqueues", str(spec.queues))
        pair = ("type", "veth", "peer", "name", name, *queues, "netns", hosts[1])
        return [ip_inside(hosts[0], "link", "add", name, *queues, *pair)]
    fabric, bridge = fabric_name(prefix), f"br{eni}"
    plan = [
        ip_inside(fabric, "link", "add", bridge, "type", "bridge"),
        ip_inside(fabric, "link", "set", bridge, "mtu", str(spec.mtu_bytes), "up"),
    ]
    for host, namespace in enumerate(hosts):
        port = port_name(host, name)
        plan += [
            ip_inside(namespace, "link", "add", name, "type", "veth", "peer", "name", port, "netns", fabric),
            ip_inside(fabric, "link", "set", port, "mtu", str(spec.mtu_bytes), "master", bridge, "up"),
        ]
    return plan


def _plan_eni(spec: LabSpec, namespace: str, host: int, eni: int) -> list[Command]:
    name = eni_name(eni)
    plan = [
        ip_inside(namespace, "address", "add", f"{eni_address(host, eni)}/24", "dev", name),
        ip_inside(namespace, "link", "set", name, "mtu", str(spec.mtu_bytes), "up"),
    ]
    if spec.offload is not Offload.STOCK:
        gro = "on" if spec.offload is Offload.SEGMENT else "off"
        words = ("tso", "off", "gso", "off", "tx-udp-segmentation", "off", "gro", gro)
        plan.append(run_inside(namespace, "ethtool", "-K", name, *words))
    if spec.rps_cores:
        plan += [_plan_rps(spec, namespace, host, name, queue) for queue in range(spec.queues)]
    if spec.cap_mbps is not None:
        burst_bytes = max(TBF_BURST_MIN_BYTES, int(spec.cap_mbps * 1e6 / 8 / 1000))
        rate = ("rate", f"{spec.cap_mbps:g}mbit", "burst", str(burst_bytes), "latency", f"{TBF_QUEUE_MS}ms")
        plan.append(Command(("tc", "-netns", namespace, "qdisc", "add", "dev", name, "root", "tbf", *rate)))
    if spec.flow_cap_mbps is not None:
        plan += _plan_flow_cap(spec.flow_cap_mbps, namespace, name)
    return plan


def _plan_rps(spec: LabSpec, namespace: str, host: int, name: str, queue: int) -> Command:
    mask = 1 << host % spec.rps_cores
    file = f"/sys/class/net/{name}/queues/rx-{queue}/rps_cpus"
    return run_inside(namespace, "tee", file, stdin=f"{mask:x}\n")


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
        run_inside(namespace, "nft", "-f", "-", stdin=rules),
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
    return run_inside(namespace, "nft", "-f", "-", stdin=f"table netdev harp_loss {{\n{chains}}}\n")
