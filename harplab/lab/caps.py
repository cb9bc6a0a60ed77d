# SPDX-License-Identifier: Apache-2.0
"""Rate caps: of an ENI, of each flow on it, or both.

An ENI's cap is a token bucket before its link, and where a switch joins the hosts another one at the
switch's port, as a cloud caps both directions: there many senders meet one receiver. The cap of a flow is at
its sender. A flow is a 5-tuple, as clouds have it: a hash of addresses, ports and protocol chooses its class.
What waits for a cap is bounded in bytes; AF_XDP in copy mode passes a sender's own queues by.

- By default a bucket holds two superframes or 1 ms, and the queue 10 ms: superframes cross whole.
- A short queue (queue_us) has a bucket of some microseconds. What is larger than the bucket is cut there.
  The bucket counts for what fits into it alone: of what is cut, as much passes as the queue holds.
- A policer is a bucket of its burst, with a queue of one packet, the least that the kernel's bucket has: what
  comes when the bucket is empty and a packet waits is dropped. Some small packets find room beside it, since
  a policer without a queue passes these with what is left in its bucket. It is at the switch's port alone,
  where packets arrive one by one: of a superframe that is cut in the queue all packets but one would be
  dropped.
"""

from __future__ import annotations

from harplab.lab.commands import Command, run_inside
from harplab.lab.spec import LabSpec, eni_name, fabric_name, host_names, port_name

BURST_MIN_BYTES = 128 * 1024  # two of the largest superframes
BURST_MS = 1
SHORT_BURST_US = 32  # a short queue's bucket: how late the kernel's timer may be without loss of rate
SHORT_BURST_PACKETS = 2  # at least
POLICE_SMALL_BYTES = 512  # the room for acknowledgements, beside the packet that waits
FLOW_CLASSES = (
    2048  # the classes of the per-flow cap, by a hash; two flows in one class share its cap (8 flows: 1.4 %)
)
FLOW_HASH_SEED = 0x4841  # any number: without one the kernel draws a seed, and runs are not repeatable
FLOW_CLASS_FIRST = 0x10001  # 1:1 as the kernel writes a class: handle << 16 | number
TOTAL_CLASS = "1:fff"  # the class of all flows together


def plan_caps(spec: LabSpec, prefix: str, host: int, eni: int, cap_mbps: float | None) -> list[Command]:
    """Plan the caps of a host's ENI: this one in both directions, and its flows'."""
    name, namespace = eni_name(eni), host_names(spec, prefix)[host]
    if spec.flow_cap_mbps is not None:
        plan = _plan_flows(namespace, name, spec.flow_cap_mbps, cap_mbps, spec.queue_ms)
    else:
        plan = [] if spec.is_policed else _plan_total(spec, namespace, name, cap_mbps)
    if spec.has_fabric:
        plan += _plan_total(spec, fabric_name(prefix), port_name(host, name), cap_mbps)
    return plan


def plan_uncap(spec: LabSpec, prefix: str, host: int, eni: int) -> list[Command]:
    """Plan the removal of an ENI's caps; a command of it fails where there is none."""
    name = eni_name(eni)
    places = [(host_names(spec, prefix)[host], name)]
    if spec.has_fabric:
        places.append((fabric_name(prefix), port_name(host, name)))
    plan = [_tc_command(namespace, "qdisc", "del", "dev", device, "root") for namespace, device in places]
    if spec.flow_cap_mbps is not None:
        plan.append(run_inside(places[0][0], "nft", "delete", "table", "netdev", f"harp_flow_{name}"))
    return plan


def _tc_command(namespace: str, *words: str) -> Command:
    return Command(("tc", "-netns", namespace, *words))


def _bytes_in(cap_mbps: float, ms: float) -> int:
    return max(BURST_MIN_BYTES, int(cap_mbps * 1e6 / 8 * ms / 1000))


def _plan_total(spec: LabSpec, namespace: str, device: str, cap_mbps: float | None) -> list[Command]:
    if cap_mbps is None:
        return []
    bucket = _bucket_words(spec, cap_mbps)
    return [
        _tc_command(namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{cap_mbps:g}mbit", *bucket)
    ]


def _bucket_words(spec: LabSpec, cap_mbps: float) -> tuple[str, ...]:
    """Write a bucket's size, and how much waits for it."""
    bytes_per_us = cap_mbps / 8
    if spec.police_burst_kib is not None:
        return (
            "burst",
            str(int(spec.police_burst_kib * 1024)),
            "limit",
            str(spec.frame_bytes + POLICE_SMALL_BYTES),
        )
    if spec.queue_us is not None:
        burst = max(SHORT_BURST_PACKETS * spec.frame_bytes, int(bytes_per_us * SHORT_BURST_US))
        return "burst", str(burst), "limit", str(int(bytes_per_us * spec.queue_us))
    return "burst", str(_bytes_in(cap_mbps, BURST_MS)), "latency", f"{spec.queue_ms:g}ms"


def _plan_flows(
    namespace: str, name: str, flow_mbps: float, cap_mbps: float | None, queue_ms: float
) -> list[Command]:
    """Plan a class for each value of the flows' hash, as a cloud polices each flow by itself."""
    burst_bytes = _bytes_in(flow_mbps, BURST_MS)
    bursts = f"burst {burst_bytes} cburst {burst_bytes} quantum 65536"
    lines = [f"qdisc add dev {name} root handle 1: htb default 1"]
    parent, rate = "1:", f"rate {flow_mbps:g}mbit"
    if cap_mbps is not None:  # a class may send at its own rate in any case, and borrows what is above that
        total_bytes = _bytes_in(cap_mbps, BURST_MS)
        total = f"htb rate {cap_mbps:g}mbit burst {total_bytes} cburst {total_bytes} quantum 65536"
        lines.append(f"class add dev {name} parent 1: classid {TOTAL_CLASS} {total}")
        share_bits = int(min(flow_mbps, cap_mbps) * 1e6 / FLOW_CLASSES)
        parent, rate = TOTAL_CLASS, f"rate {share_bits}bit ceil {flow_mbps:g}mbit"
    for bucket in range(1, FLOW_CLASSES + 1):
        lines.append(f"class add dev {name} parent {parent} classid 1:{bucket:x} htb {rate} {bursts}")
        lines.append(f"qdisc add dev {name} parent 1:{bucket:x} bfifo limit {_bytes_in(flow_mbps, queue_ms)}")
    chooses = [f"    {_class_rule(family)}\n" for family in ("ip", "ip6")]
    rules = (
        f"table netdev harp_flow_{name} {{\n"
        f"  chain flows {{\n"
        f'    type filter hook egress device "{name}" priority 0; policy accept;\n'
        f"{''.join(chooses)}  }}\n}}\n"
    )
    return [
        Command(("tc", "-netns", namespace, "-batch", "-"), "\n".join(lines) + "\n"),
        run_inside(namespace, "nft", "-f", "-", stdin=rules),
    ]


def _class_rule(family: str) -> str:
    """Write the rule that chooses a flow's class."""
    key = f"{family} saddr . {family} daddr . meta l4proto . th sport . th dport"
    hashed = f"jhash {key} mod {FLOW_CLASSES} seed {FLOW_HASH_SEED:#x} offset {FLOW_CLASS_FIRST}"
    return f"meta protocol {family} meta l4proto {{ tcp, udp }} meta priority set {hashed}"
