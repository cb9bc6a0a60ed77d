# SPDX-License-Identifier: Apache-2.0
"""One connection over several ENIs: all of them used, any of them lost, back again, and the last one lost."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets, eni_name
from tests.lab.job import (
    EXIT_PLUGIN,
    UNTIL_FINISHED,
    Job,
    gained_by_eni,
    poll_until,
    until_all_moving,
    until_connected,
)

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
StartJob = Callable[..., Job]

CAP_MBPS = 200.0
LONG = ("--time", "600", "--iters", "10000000", "--warmup", "1")
STRIPED = {"HARP_IFNAME": "eni"}
CARRIERS = pytest.mark.parametrize("carrier", ["auto", "tcp"])
REPORT_S = 20.0
OUT = re.compile(r"INFO .*(?:eni|nothing gets through to the interface 10\.77\.)(\d+)[.:].*used again")
UNANSWERED = re.compile(r"timer:\(keepalive,[^,]*,[1-9]")
WORKS = re.compile(r"NET/HARP: (?:\S+: the interface 10\.77\.|eni)(\d+)\S*:? .*works again")


@pytest.fixture
def start(plugin_file: Path, tmp_path: Path) -> StartJob:
    """Provide a function that makes a job over all ENIs of a lab."""

    def make(lab: Lab, **words: object) -> Job:
        env = {**STRIPED, **words.pop("env", {})}  # type: ignore[dict-item]
        words.setdefault("words", LONG)
        words.setdefault("sizes", "256K")
        return Job(lab, plugin_file, env=env, meeting=tmp_path / "meeting", **words)  # type: ignore[arg-type]

    return make


def _until_reported(job: Job, rank: int, what: re.Pattern[str], eni: int) -> None:
    """Wait until a line reports an ENI, ours or the peer's: which of them is not always known."""
    poll_until(f"{what.pattern}: {eni}", lambda: str(eni) in what.findall(job.log(rank)), REPORT_S)


@pytest.mark.parametrize(
    ("subnets", "engine", "mode"),  # each two of them in all combinations
    [
        (Subnets.EACH, "inline", "stream"),
        (Subnets.EACH, "thread", "bidir"),
        (Subnets.ONE, "inline", "bidir"),
        (Subnets.ONE, "thread", "stream"),
    ],
)
def test_all_are_used(make_lab: MakeLab, start: StartJob, subnets: Subnets, engine: str, mode: str) -> None:
    lab = make_lab(LabSpec(enis=4, cap_mbps=CAP_MBPS, subnets=subnets, switch=subnets is not Subnets.EACH))
    with start(lab, mode=mode, words=UNTIL_FINISHED, env={"HARP_ENGINE": engine}) as job:
        until_all_moving(job, 1)
        if mode == "bidir":
            until_all_moving(job, 0)
        job.finish()
        assert "eni0+eni1+eni2+eni3: connected" in job.log(0)


def test_every_size(make_lab: MakeLab, start: StartJob) -> None:
    sizes = "1,7,8,16,127,128,129,1000,4096,16384,16385,32768,32769,65536,131072,524288,1M,4M"
    with start(make_lab(LabSpec(enis=3)), mode="bidir", sizes=sizes, words=("--iters", "40")) as job:
        job.finish()


def test_many_connections(make_lab: MakeLab, start: StartJob) -> None:
    """Probes of paths that carry nothing stay few beside the messages."""
    words = ("--iters", "100", "--inflight", "1", "--connections", "100")
    with start(make_lab(LabSpec(enis=4)), mode="bidir", sizes="1K", words=words) as job:
        assert job.wait() == [0, 0]
        counted = job.statistics()
        assert counted["messages_sent"] >= 2 * 100 * 100
        assert counted["probes"] < 3 * counted["messages_sent"]  # 15 times as many where nothing bounds them


def test_two_against_eight(make_lab: MakeLab, start: StartJob) -> None:
    """Each of the eight has a partner, and both directions stripe."""
    spec = LabSpec(enis=8, host_enis=(2, 8), switch=True, subnets=Subnets.ONE, cap_mbps=CAP_MBPS)
    with start(make_lab(spec), mode="bidir", words=UNTIL_FINISHED) as job:
        until_all_moving(job, 0)
        until_all_moving(job, 1)
        job.finish()


def test_unequal_speeds(make_lab: MakeLab, start: StartJob) -> None:
    """The quick one carries most, and the slow one its share."""
    lab = make_lab(LabSpec(enis=2, cap_mbps=(CAP_MBPS, CAP_MBPS / 4)))
    with start(lab) as job:
        until_connected(job)
        since = job.received_by_eni(1)
        poll_until("enough to measure", lambda: sum(gained_by_eni(job, 1, since).values()) > 60 << 20)
        gained = gained_by_eni(job, 1, since)
        assert 1.5 < gained["eni0"] / gained["eni1"] < 6  # 4 where neither ever runs dry


def test_mixed_drivers(make_lab: MakeLab, start: StartJob) -> None:
    """Striped over AF_XDP on one host, over sockets on the other."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=3498))
    with start(
        lab, mode="bidir", words=("--iters", "200"), rank_env=({"HARP_DRIVER": "xdp"}, {"HARP_DRIVER": "udp"})
    ) as job:
        job.finish()


# ---- losing some ----

Hurt = Callable[[Lab, int], object]
HURTS: dict[str, tuple[Hurt, Hurt]] = {
    "down": (lambda lab, eni: lab.link_down(0, eni), lambda lab, eni: lab.link_up(0, eni)),
    "peer down": (lambda lab, eni: lab.link_down(1, eni), lambda lab, eni: lab.link_up(1, eni)),
    "silent": (
        lambda lab, eni: lab.faults(1, eni).blackhole("both"),
        lambda lab, eni: lab.faults(1, eni).clear(),
    ),
    "silent there": (
        lambda lab, eni: lab.faults(1, eni).blackhole("in"),
        lambda lab, eni: lab.faults(1, eni).clear(),
    ),
    "silent back": (
        lambda lab, eni: lab.faults(1, eni).blackhole("out"),
        lambda lab, eni: lab.faults(1, eni).clear(),
    ),
    "no address": (lambda lab, eni: lab.remove_address(0, eni), lambda lab, eni: lab.add_address(0, eni)),
    "no address there": (
        lambda lab, eni: lab.remove_address(1, eni),
        lambda lab, eni: lab.add_address(1, eni),
    ),
}


def _replace_eni(lab: Lab, host: int, eni: int) -> None:
    """Take an ENI out of the host, and put it in again: it gets another index, since its own is taken."""
    here, there, name = lab.hosts[host], lab.hosts[1 - host], eni_name(eni)
    read_index = run_inside(here, "cat", f"/sys/class/net/{name}/ifindex")
    index = run_command(read_index).strip()
    run_command(ip_inside(here, "link", "set", name, "name", "away", "netns", there))
    run_command(ip_inside(here, "link", "add", "hold", "index", index, "type", "bridge"))
    run_command(ip_inside(there, "link", "set", "away", "name", name, "netns", here))
    assert run_command(read_index).strip() != index


def test_one_is_replaced(make_lab: MakeLab, start: StartJob) -> None:
    lab = make_lab(LabSpec(enis=2, cap_mbps=CAP_MBPS))
    with start(lab, env={"HARP_PEER_TIMEOUT": "60"}) as job:
        until_all_moving(job, 1)
        _replace_eni(lab, 0, 1)
        until_all_moving(job, 1, without=frozenset({"eni1"}))
        _until_reported(job, 0, OUT, 1)
        lab.link_up(0, 1)
        lab.add_address(0, 1)
        _until_reported(job, 0, WORKS, 1)
        until_all_moving(job, 1)


@pytest.mark.parametrize(
    ("how", "mode"),
    [(how, "stream" if how in {"silent there", "silent back"} else "bidir") for how in HURTS],
)
def test_one_is_lost(make_lab: MakeLab, start: StartJob, how: str, mode: str) -> None:
    """The others go on at once; one line names it; it is used again. Over the first one processes met."""
    lab = make_lab(LabSpec(enis=3, cap_mbps=CAP_MBPS))
    hurt, heal = HURTS[how]
    with start(lab, mode=mode, env={"HARP_PEER_TIMEOUT": "60"}) as job:
        until_all_moving(job, 1)
        for eni in (1, 0):
            hurt(lab, eni)
            until_all_moving(job, 1, without=frozenset({f"eni{eni}"}))
            if mode == "bidir":
                until_all_moving(job, 0, without=frozenset({f"eni{eni}"}))
            _until_reported(job, 0, OUT, eni)
            heal(lab, eni)
            _until_reported(job, 0, WORKS, eni)
            until_all_moving(job, 1)
        assert list(dict.fromkeys(OUT.findall(job.log(0)))) == ["1", "0"]
        assert not job.warns(0) + job.warns(1)  # the job goes on


def test_the_first_for_good(make_lab: MakeLab, start: StartJob) -> None:
    """The connection outlives its control connection; a peer that dies then is found by silence."""
    lab = make_lab(LabSpec(enis=3, cap_mbps=CAP_MBPS))
    with start(lab, env={"HARP_PEER_TIMEOUT": "1"}) as job:
        until_all_moving(job, 1)
        lab.faults(1, 0).blackhole("both")
        poll_until("control connection is given up", lambda: "continues over other" in job.log(0) + job.log(1))
        until_all_moving(job, 1, 8 << 20, without=frozenset({"eni0"}))
        job.ranks[1].kill()
        poll_until("the death is found", lambda: job.ranks[0].poll() is not None, 30)
        assert job.ranks[0].returncode == EXIT_PLUGIN
        assert any("lost vm" in line or "lost " in line for line in job.warns(0))


def _drop_in_its_own_firewall(lab: Lab, host: int) -> None:
    """Drop what a host sends through its first ENI, so that its kernel knows it."""
    rule = 'type filter hook egress device "eni0" priority 0; policy drop;'
    table = f"table netdev harp_test {{ chain drops {{\n{rule}\n}}\n}}\n"
    run_command(run_inside(lab.hosts[host], "nft", "-f", "-", stdin=table))


def _until_keepalives_are_answered(lab: Lab, host: int) -> None:
    """Wait until no keepalive is under way: one that is lost on the way ends the connection in time."""
    command = run_inside(lab.hosts[host], "ss", "-H", "-n", "-t", "-o")
    poll_until("keepalives are answered", lambda: not UNANSWERED.search(run_command(command)))


@pytest.mark.parametrize("left", [0, 1], ids=["sender", "receiver"])
def test_killed_where_the_kernel_never_gives_up(make_lab: MakeLab, start: StartJob, left: int) -> None:
    """A kernel whose own firewall drops its keepalives takes that for congestion, and probes forever."""
    lab = make_lab(LabSpec(enis=2, cap_mbps=CAP_MBPS))
    with start(lab, env={"HARP_PEER_TIMEOUT": "1"}) as job:
        until_all_moving(job, 1)
        _drop_in_its_own_firewall(lab, left)
        _until_keepalives_are_answered(lab, left)
        lab.faults(left, 0).blackhole("in")
        poll_until("the other gives it up", lambda: "continues over other" in job.log(1 - left))
        until_all_moving(job, 1, 8 << 20, without=frozenset({"eni0"}))
        assert "continues over other" not in job.log(left)
        job.ranks[1 - left].kill()
        poll_until("the death is found", lambda: job.ranks[left].poll() is not None, 30)
        assert job.ranks[left].returncode == EXIT_PLUGIN
        assert re.search("for 1 s: the |its process has ended", job.warns(left)[-1])


@pytest.mark.parametrize("way", ["in", "out"])
def test_the_first_in_one_direction(make_lab: MakeLab, start: StartJob, way: str) -> None:
    """Who hears nothing gives the control connection up, and its kernel resets it: the peer lives on."""
    lab = make_lab(LabSpec(enis=3, cap_mbps=CAP_MBPS))
    with start(lab, env={"HARP_PEER_TIMEOUT": "2"}) as job:
        until_all_moving(job, 1)
        lab.faults(1, 0).blackhole(way)
        poll_until("both give it up", lambda: all("continues over other" in job.log(rank) for rank in range(2)))
        until_all_moving(job, 1, 64 << 20, without=frozenset({"eni0"}))
        lab.faults(1, 0).clear()
        until_all_moving(job, 1, 8 << 20)


def _orders_of_failures(full: bool) -> list[tuple[int, ...]]:
    orders = list(itertools.permutations(range(4)))
    return orders if full else [orders[0], orders[7], orders[16], orders[23]]


@CARRIERS
def test_all_but_one_in_every_order(
    make_lab: MakeLab, start: StartJob, request: pytest.FixtureRequest, carrier: str
) -> None:
    """Three of four lost one by one on alternating sides, and restored in another order."""
    lab = make_lab(LabSpec(enis=4, subnets=Subnets.ONE, switch=True, cap_mbps=CAP_MBPS))
    with start(lab, env={"HARP_DRIVER": carrier}) as job:
        until_all_moving(job, 1)
        for order in _orders_of_failures(request.config.getoption("--flaps") > 0):
            lost: set[int] = set()
            for step, eni in enumerate(order[:3]):
                lab.link_down(step % 2, eni)
                lost.add(eni)
                until_all_moving(
                    job, 1, 256 << 10, without=frozenset(f"eni{one}" for one in range(4) if one != order[3])
                )
            for step, eni in sorted(enumerate(order[:3]), key=lambda item: order[item[0]]):
                lab.link_up(step % 2, eni)
            until_all_moving(job, 1, 256 << 10)
        assert all(child.poll() is None for child in job.ranks)


def test_different_ones_on_each_side(make_lab: MakeLab, start: StartJob) -> None:
    """What is left on one side and on the other are no partners: a standby path joins them."""
    lab = make_lab(LabSpec(enis=3, subnets=Subnets.ONE, switch=True, cap_mbps=CAP_MBPS))
    with start(lab) as job:
        until_all_moving(job, 1)
        for eni in (0, 1):
            lab.link_down(0, eni)
        for eni in (1, 2):
            lab.link_down(1, eni)
        until_all_moving(job, 1, without=frozenset({"eni1", "eni2"}))
        for host, eni in itertools.product((0, 1), range(3)):
            lab.link_up(host, eni)
        until_all_moving(job, 1)


@CARRIERS
def test_the_last_is_lost(make_lab: MakeLab, start: StartJob, carrier: str) -> None:
    """An error with its cause, on the side that finds it first or on both, and no hang."""
    lab = make_lab(LabSpec(enis=2))
    with start(lab, env={"HARP_PEER_TIMEOUT": "2", "HARP_DRIVER": carrier}) as job:
        until_all_moving(job, 1)
        for eni in range(2):
            lab.faults(1, eni).blackhole("both")
        begun = time.monotonic()
        codes = job.wait(30)
        assert EXIT_PLUGIN in codes
        assert time.monotonic() - begun < 12
        for rank in (rank for rank, code in enumerate(codes) if code == EXIT_PLUGIN):
            assert len([line for line in job.warns(rank) if "is down" in line]) == 1


BROKEN_FIRST: dict[str, tuple[Subnets, Callable[[Lab], object]]] = {
    "ours": (Subnets.ONE, lambda lab: lab.faults(0, 0).blackhole("both")),
    "the listener's has no address": (Subnets.EACH, lambda lab: lab.remove_address(1, 0)),
}


@pytest.mark.parametrize("what", BROKEN_FIRST)
def test_the_first_is_lost_before(make_lab: MakeLab, start: StartJob, what: str) -> None:
    """A connection is made from another interface of ours when nothing answers on the first."""
    subnets, hurt = BROKEN_FIRST[what]
    lab = make_lab(LabSpec(enis=3, subnets=subnets, switch=True, cap_mbps=CAP_MBPS))
    hurt(lab)
    with start(lab, words=("--iters", "20"), env={"HARP_PEER_TIMEOUT": "4"}) as job:
        assert job.wait() == [0, 0]
        assert all(result.wrong == 0 for result in job.report().results)


@CARRIERS
def test_flaps(make_lab: MakeLab, start: StartJob, request: pytest.FixtureRequest, carrier: str) -> None:
    """Links flap at random in mid-transfer; every byte is checked."""
    flaps = request.config.getoption("--flaps") or 20
    lab = make_lab(LabSpec(enis=4, cap_mbps=CAP_MBPS))
    dice = random.Random(flaps)
    with start(lab, mode="bidir", env={"HARP_PEER_TIMEOUT": "60", "HARP_DRIVER": carrier}) as job:
        until_all_moving(job, 1)
        for _ in range(flaps):
            host, eni = dice.randrange(2), dice.randrange(4)
            lab.link_down(host, eni)
            time.sleep(dice.uniform(0, 0.15))  # as long as a flap takes
            lab.link_up(host, eni)
            assert all(child.poll() is None for child in job.ranks), "a flap ended the job"
        until_all_moving(job, 1)
