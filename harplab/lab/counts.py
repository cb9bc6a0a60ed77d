# SPDX-License-Identifier: Apache-2.0
"""Counts the packets that a lab's network was given, and those of them that it dropped.

A cap's queue or policer drops, and so does a rule of the firewall; both count. The network is given what a
host's ENI sends and what that ENI's own cap drops. Packets that the injector drops are in its own counts.
A superframe that crosses whole, or is dropped whole, is one packet.
"""

from __future__ import annotations

import re
import shutil

import msgspec

from harplab.lab.commands import Command, Run, run_inside
from harplab.lab.spec import LabSpec, fabric_name, host_names
from harplab.perf.counts import PacketCounts

RULE_COUNTER = re.compile(r"counter packets (\d+) bytes \d+ drop")
ENI_DEVICE = re.compile(r"(h\d+)?eni\d+")


class _Qdisc(msgspec.Struct, frozen=True):
    dev: str
    root: bool = False
    drops: int = 0


class _Sent(msgspec.Struct, frozen=True):
    packets: int


class _Statistics(msgspec.Struct, frozen=True):
    tx: _Sent


class _Link(msgspec.Struct, frozen=True):
    ifname: str
    stats64: _Statistics


def read_counts(spec: LabSpec, prefix: str, run: Run) -> PacketCounts:
    """Read the counters of a lab that stands."""
    offered = dropped = 0
    for namespace in host_names(spec, prefix):
        queued = _read_queue_drops(spec, namespace, run)
        offered += _read_sent(namespace, run) + queued
        dropped += queued + _read_rule_drops(namespace, run)
    if spec.has_fabric:
        fabric = fabric_name(prefix)
        dropped += _read_queue_drops(spec, fabric, run) + _read_rule_drops(fabric, run)
    return PacketCounts(offered, dropped)


def _read_sent(namespace: str, run: Run) -> int:
    shown = run(Command(("ip", "-netns", namespace, "-s", "-json", "link", "show", "type", "veth")))
    links = msgspec.json.decode(shown or "[]", type=list[_Link])
    return sum(link.stats64.tx.packets for link in links if ENI_DEVICE.fullmatch(link.ifname))


def _read_queue_drops(spec: LabSpec, namespace: str, run: Run) -> int:
    """Add up what the caps dropped; a root's count holds that of its classes."""
    if not spec.is_capped and shutil.which("tc") is None:
        return 0
    shown = run(Command(("tc", "-netns", namespace, "-s", "-json", "qdisc", "show")))
    qdiscs = msgspec.json.decode(shown or "[]", type=list[_Qdisc])
    return sum(one.drops for one in qdiscs if one.root and ENI_DEVICE.fullmatch(one.dev))


def _read_rule_drops(namespace: str, run: Run) -> int:
    if shutil.which("nft") is None:
        return 0
    return sum(map(int, RULE_COUNTER.findall(run(run_inside(namespace, "nft", "list", "ruleset")))))
