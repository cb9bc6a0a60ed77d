# SPDX-License-Identifier: Apache-2.0
"""Attacks at the speed of a C program, on a job that moves data and on one that connects.

With --hostile they last longer, and the job is to keep 0.8 of its rate. An attack takes cores of the one
machine, and room on the job's links, whatever HARP does; so the rate is compared with that under the same
attack on a port where nobody listens.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec, Offload, fabric_name, port_name
from tests.hostile.conftest import Scale
from tests.hostile.flood import Usage, add_addresses, counts_of, flood_from, open_ports, received_by
from tests.lab.job import ENI, UNTIL_FINISHED, Job, until_connected
from tests.lab.remote import RemotePeer, transfer_messages

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
ATTACKER = 2  # its host
CAP_MBPS = 1000.0
SOURCES = [f"10.77.0.{n}" for n in range(50, 58)]  # addresses of the attacker
# Strangers at the listeners and at the ports of tcp paths, and what a job opens and closes by itself.
FILES_MAX = 256 + 32 + 40
RSS_MAX_KIB = 48 << 10
KEPT_SHARE = 0.8
PPS = "20000"
ROUNDS = 7
NOBODYS_PORT = "9"
KINDS = GUESS, ICMP, CONNECTS, SYN, REPLAY = "guess", "icmp", "connects", "syn", "replay"
FORGE, FORGE_BACK = "forge", "forge back"  # towards the victim, and towards its peer
ON_PATH = {REPLAY, FORGE, FORGE_BACK}


class Ports(NamedTuple):
    """The victim's ports that are attacked."""

    udp: list[str]
    tcp: list[str]


NOBODYS = Ports([NOBODYS_PORT], [NOBODYS_PORT])


def _measure_goodput(job: Job, usage: Usage, seconds: float) -> float:
    """Return what rank 1's engine received of messages, in bytes a second, and watch what it uses."""
    begun_s, before = time.monotonic(), _received_bytes(job)
    usage.watch(seconds)
    return (_received_bytes(job) - before) / (time.monotonic() - begun_s)


def _received_bytes(job: Job) -> int:
    return sum(int(row["received_bytes"]) for row in job.tables(1)["session"])


def _attack_words(kind: str, lab: Lab, scale: Scale, ports: Ports) -> list[str]:
    seconds, victim, peer = str(scale.seconds), lab.address(1), lab.address(0)
    return {
        GUESS: ["guess", seconds, PPS, victim, "0", *ports.udp],
        ICMP: ["icmp", seconds, PPS, victim, peer, *ports.udp],
        CONNECTS: ["connects", seconds, str(scale.held), victim, ",".join(SOURCES), *ports.tcp],
        SYN: ["syn", seconds, victim, "10.77.0", *ports.tcp],
        REPLAY: ["replay", seconds, PPS, port_name(1, ENI)],
        FORGE: ["forge", seconds, PPS, port_name(1, ENI)],
        FORGE_BACK: ["forge", seconds, PPS, port_name(0, ENI)],
    }[kind]


def _rate_under(kind: str, lab: Lab, job: Job, program: Path, scale: Scale, ports: Ports) -> float:
    """Attack a running job, and judge what that does to it; return what it receives meanwhile."""
    usage = Usage(job.ranks[1].pid)
    came = received_by(lab, ATTACKER, ENI)
    attacker = fabric_name(lab.prefix) if kind in ON_PATH else lab.hosts[ATTACKER]
    with flood_from(program, attacker, *_attack_words(kind, lab, scale, ports)) as attack:
        rate = _measure_goodput(job, usage, scale.seconds)
        counts = counts_of(attack, scale.seconds)
    came = received_by(lab, ATTACKER, ENI) - came
    files, kib = usage.grown()
    print(f"{kind}: {counts}, {rate * 8 / 1e6:.0f} Mbit/s, files +{files}, KiB +{kib}, back {came} bytes")
    assert counts.get("sent", counts.get("begun", 0)) > 0, kind
    assert rate > 0, kind
    assert files < FILES_MAX, kind
    assert kib < RSS_MAX_KIB, kind
    if kind in {GUESS, ICMP} and ports is not NOBODYS:  # nothing answers what proves nothing
        assert came < counts["sent"], kind
    return rate


def _attack_job(kind: str, lab: Lab, job: Job, program: Path, scale: Scale) -> None:
    ports = Ports(open_ports(lab, 1, "udp"), open_ports(lab, 1, "tcp"))
    if not scale.judges_rate:
        _rate_under(kind, lab, job, program, scale, ports)
        return
    kept = []
    for _ in range(ROUNDS):
        if kind in ON_PATH:
            before = _measure_goodput(job, Usage(job.ranks[1].pid), scale.seconds)
        else:
            before = _rate_under(kind, lab, job, program, scale, NOBODYS)
        kept.append(_rate_under(kind, lab, job, program, scale, ports) / before)
    print(f"{kind}: kept {kept}")
    assert statistics.median(kept) > KEPT_SHARE, kind


@pytest.mark.timeout(600)
def test_a_job_goes_on(make_lab: MakeLab, plugin_file: Path, flood_program: Path, scale: Scale) -> None:
    """Every byte is right at the end, and no rank has warned (Job.finish)."""
    lab = make_lab(LabSpec(hosts=3, enis=2, cap_mbps=CAP_MBPS, offload=Offload.OFF))
    add_addresses(lab, ATTACKER, SOURCES, ENI)
    env = {"HARP_DRIVER": "auto", "HARP_PATHS": "2"}  # these messages go in datagrams
    dropped: Counter[str] = Counter()
    for kinds in [[kind] for kind in KINDS] if scale.judges_rate else [KINDS]:  # a job has an end
        with Job(lab, plugin_file, sizes="16K", words=UNTIL_FINISHED, env=env, ranks=2) as job:
            until_connected(job)
            job.until_moving()
            for kind in kinds:
                _attack_job(kind, lab, job, flood_program, scale)
            job.finish()
            dropped += job.statistics_of(1)
    assert dropped["drop_REPLAY"] > 0
    assert dropped["drop_TOKEN"] > 0


@pytest.mark.timeout(600)
def test_nobody_on_the_path_forges(
    make_lab: MakeLab, plugin_file: Path, flood_program: Path, scale: Scale
) -> None:
    """With MACs a job takes none of data, probes and ACKs with a right CRC that are not its own."""
    lab = make_lab(LabSpec(hosts=3, enis=2, cap_mbps=CAP_MBPS, offload=Offload.OFF))
    env = {"HARP_DRIVER": "auto", "HARP_PATHS": "2", "HARP_AUTH": "mac"}
    for kind in (FORGE, FORGE_BACK):
        with Job(lab, plugin_file, sizes="16K", words=UNTIL_FINISHED, env=env, ranks=2) as job:
            until_connected(job)
            job.until_moving()
            _attack_job(kind, lab, job, flood_program, scale)
            job.finish()
            counted = job.statistics_of(1 if kind == FORGE else 0)
            assert counted["drop_MAC"] > 1000


def test_who_forges_without_macs_ends_a_job(
    make_lab: MakeLab, plugin_file: Path, flood_program: Path, scale: Scale
) -> None:
    """The attack is one: it delivers wrong bytes, or ends the connection."""
    lab = make_lab(LabSpec(hosts=3, enis=2, cap_mbps=CAP_MBPS, offload=Offload.OFF))
    env = {"HARP_DRIVER": "auto", "HARP_PATHS": "2"}
    with Job(lab, plugin_file, sizes="16K", words=UNTIL_FINISHED, env=env, ranks=2) as job:
        until_connected(job)
        job.until_moving()
        words = _attack_words(FORGE_BACK, lab, scale, NOBODYS)
        with flood_from(flood_program, fabric_name(lab.prefix), *words) as attack:
            counts_of(attack, scale.seconds)
        assert any(job.wait())


def test_a_peer_connects_among_half_open_connections(
    make_lab: MakeLab, plugin_file: Path, flood_program: Path, scale: Scale
) -> None:
    lab = make_lab(LabSpec(hosts=3))
    add_addresses(lab, ATTACKER, SOURCES, ENI)
    env = {"HARP_ENGINE": "thread"}
    with (
        RemotePeer(lab, 0, plugin_file, env) as receiver,
        RemotePeer(lab, 1, plugin_file, env) as sender,
    ):
        handle = receiver.call("listen")
        usage = Usage(receiver.child.pid)
        tcp = open_ports(lab, 0, "tcp")
        words = ["connects", str(scale.seconds), str(scale.held), lab.address(0)]
        with contextlib.ExitStack() as stack:
            attacks = [
                stack.enter_context(
                    flood_from(
                        flood_program,
                        lab.hosts[ATTACKER],
                        *words,
                        ",".join(SOURCES[i :: scale.attackers]),
                        *tcp,
                    )
                )
                for i in range(scale.attackers)
            ]
            usage.watch(scale.seconds / 2)
            receiver.start("accept")
            assert sender.call("connect", handle) == 0
            assert receiver.answer() == 0
            transfer_messages(receiver, sender, 16, 300_000)
            usage.take_sample()
            counts = [counts_of(attack, scale.seconds) for attack in attacks]
        transfer_messages(receiver, sender, 16, 300_000)
        print("connects", counts, usage.grown())
        files, kib = usage.grown()
        assert files < FILES_MAX
        assert kib < RSS_MAX_KIB
