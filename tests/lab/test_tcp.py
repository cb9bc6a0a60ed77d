# SPDX-License-Identifier: Apache-2.0
"""Large messages over kernel TCP, beside datagrams; and what happens when one of the two goes."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harpctl.stats.layout import Value
from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, fabric_name, port_name
from tests.lab.job import (
    ALL_SIZES,
    ENI,
    EXIT_PLUGIN,
    UNTIL_FINISHED,
    Job,
    Meter,
    drop_no_more,
    drop_packets,
    poll_until,
)
from tests.lab.lines import assert_clean, watch_lines

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
TCP = {"HARP_DRIVER": "udp+tcp"}
LONG = ("--iters", "10000000", "--warmup", "1", "--timeout", "60")
PORT = re.compile(r": TCP connections for data are accepted on port (\d+)")
ENDED = "a TCP connection with"
CARRIERS = pytest.mark.parametrize("carrier", ["udp+tcp", "tcp"])
ENGINES = pytest.mark.parametrize("engine", ["inline", "thread"])
TURNED = re.compile(r"large messages to .* take datagrams from now on")
TRIED = re.compile(TURNED.pattern + r"|stay with TCP: in an experiment with datagrams")
TCP_BUFFER_KIB = 16  # TCP moves less than half of what datagrams do, on a loaded machine too
TRIALS_S = 500.0  # experiments that are lost double the time to the next one
STALL_S = 3.0  # 1 s is promised (docs/reference/benchmarks.md); the rest is what a busy machine needs


def _make_job(lab: Lab, plugin: Path, words: tuple[str, ...] = UNTIL_FINISHED, **env: str) -> Job:
    return Job(lab, plugin, mode="bidir", sizes="256K", words=words, env={**TCP, **env})


def _read_port(job: Job, rank: int) -> int:
    poll_until("the port is logged", lambda: PORT.search(job.log(rank)) is not None)
    found = PORT.search(job.log(rank))
    assert found
    return int(found[1])


def _rule_for_data(job: Job) -> str:
    """Return the rule for the TCP connections with data: from client to server, whichever rank that is."""
    ports = ", ".join(str(_read_port(job, rank)) for rank in range(2))
    return f"tcp dport {{ {ports} }}"


def _list_connections(lab: Lab, host: int, port: int) -> str:
    words = ("ss", "-H", "-n", "-t", "state", "established", f"( sport = :{port} or dport = :{port} )")
    return run_command(run_inside(lab.hosts[host], *words))


def _carriers_of_large(job: Job) -> set[tuple[Value, Value]]:
    """Return what the large messages of each session take, and why, by the statistics."""
    rows = [row for rank in range(2) for row in job.tables(rank)["session"]]
    return {(row["large"], row["large_why"]) for row in rows}


def _with_data(lab: Lab, job: Job) -> str:
    return "".join(_list_connections(lab, 0, _read_port(job, rank)) for rank in range(2))


@pytest.mark.parametrize(
    ("mode", "carrier", "engine"),  # each two of them in all combinations
    [
        ("stream", "udp+tcp", "inline"),
        ("stream", "tcp", "thread"),
        ("bidir", "udp+tcp", "thread"),
        ("bidir", "tcp", "inline"),
    ],
)
def test_all_sizes(make_lab: MakeLab, plugin_file: Path, mode: str, carrier: str, engine: str) -> None:
    """Every byte is right, and large messages take TCP."""
    lab = make_lab(LabSpec(enis=2))
    words = ("--iters", "40", "--connections", "3", "--warmup", "4")
    env = {"HARP_DRIVER": carrier, "HARP_ENGINE": engine}
    with Job(lab, plugin_file, mode=mode, sizes=ALL_SIZES, words=words, env=env) as job:
        job.finish()
        assert job.statistics()["tx_records"] > 40


# ---- payload by reference ----

FEW_RECORDS = ("--iters", "400", "--warmup", "4")


def _start_referencing(lab: Lab, plugin: Path, wanted: str) -> Job:
    env = {**TCP, "HARP_ZEROCOPY": wanted}
    return Job(lab, plugin, sizes="32K,1M", words=FEW_RECORDS, env=env)


@pytest.mark.parametrize("wanted", ["auto", "on", "off"])
def test_payload_by_reference(make_lab: MakeLab, plugin_file: Path, wanted: str) -> None:
    """`auto` tries both methods for records of 1 MB messages; with `on` records of all sizes go by reference."""
    with _start_referencing(make_lab(LabSpec(enis=2)), plugin_file, wanted) as job:
        job.finish()
        statistics = job.statistics()
    assert {"auto": 20, "on": 200, "off": 0}[wanted] <= statistics["tx_by_reference"]
    assert wanted != "off" or not statistics["tx_by_reference"]
    assert not statistics["reference_refusals"]


def test_payload_without_a_crc(make_lab: MakeLab, plugin_file: Path) -> None:
    """Both ways in one job: the first rank leaves it out, the other does not."""
    off: dict[str, str] = {"HARP_TCP_CHECKSUM": "off"}
    lab = make_lab(LabSpec(enis=2))
    with Job(
        lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=FEW_RECORDS, env=TCP, rank_env=(off, {})
    ) as job:
        job.finish()
        assert job.statistics_of(0)["tx_unchecked"] > 40
        assert not job.statistics_of(1)["tx_unchecked"]


@pytest.mark.parametrize(("layout", "engine"), [("ll", "thread"), ("ll128", "inline")])
def test_lines_land_in_order(
    make_lab: MakeLab,
    plugin_file: Path,
    ll_reader: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    engine: str,
) -> None:
    """A GPU that polls the flags of a large message sees no flag before its data."""
    monkeypatch.setenv("HARP_DRIVER", "udp+tcp")
    assert_clean(watch_lines(make_lab(LabSpec()), ll_reader, plugin_file, layout, 600, ENI, engine))


def _start_striped(lab: Lab, plugin: Path, meeting: Path, words: tuple[str, ...], carrier: str) -> Job:
    env = {"HARP_DRIVER": carrier, "HARP_IFNAME": "eni", "HARP_PEER_TIMEOUT": "10"}
    return Job(lab, plugin, mode="bidir", sizes="1M", words=words, env=env, meeting=meeting)


@pytest.mark.parametrize(("size", "least", "most"), [("16K", 0, 0), ("64K", 1, 4)])
def test_connections_are_opened_when_used(
    make_lab: MakeLab, plugin_file: Path, size: str, least: int, most: int
) -> None:
    """One of eight paths is used, experiments may try more; messages that datagrams carry use none."""
    lab = make_lab(LabSpec(enis=2))
    env = {**TCP, "HARP_PATHS": "8"}
    with Job(lab, plugin_file, mode="bidir", sizes=size, words=UNTIL_FINISHED, env=env) as job:
        job.until_moving(16 << 20)
        assert least <= len(_with_data(lab, job).splitlines()) <= most
        job.finish()


def test_without_udp(make_lab: MakeLab, plugin_file: Path) -> None:
    """A network that lets no UDP through costs speed, not the job."""
    lab = make_lab(LabSpec(enis=2))
    for host in range(2):
        drop_packets(lab, host, "meta l4proto udp")
    words = ("--iters", "100", "--warmup", "4")
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=words, env=TCP) as job:
        job.finish()


def test_udp_is_lost_later(make_lab: MakeLab, plugin_file: Path) -> None:
    """Small messages, which took datagrams, take TCP."""
    lab = make_lab(LabSpec(enis=2))
    with Job(lab, plugin_file, mode="bidir", sizes="4K", words=UNTIL_FINISHED, env=TCP) as job:
        job.until_moving()
        for host in range(2):
            drop_packets(lab, host, "meta l4proto udp")
        job.until_moving(16 << 20)  # far more than what is repeated by datagrams
        job.finish(may_fall_back=True)


def test_tcp_is_blocked(make_lab: MakeLab, plugin_file: Path) -> None:
    """One that is never answered is no error: data goes over datagrams."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file) as job:
        for host in range(2):
            drop_packets(lab, host, _rule_for_data(job))
        job.until_moving()
        job.finish()


def test_loss_has_datagrams_tried(make_lab: MakeLab, plugin_file: Path) -> None:
    """Beside other work TCP may be quicker all the same; which one wins is in tests/networks."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file) as job:
        for host in range(2):
            drop_packets(lab, host, f"{_rule_for_data(job)} numgen random mod 1000 < 50")
        poll_until("they were tried", lambda: bool(TRIED.search(job.log(0) + job.log(1))))
        poll_until(
            "the statistics say so", lambda: any(why == "experiments" for _, why in _carriers_of_large(job))
        )
        job.finish()
        assert job.statistics()["tcp_troubles"] >= 1


def test_a_long_queue_turns_the_choice(make_lab: MakeLab, plugin_file: Path) -> None:
    """TCP fills the queue of the slow link, which would delay all that is small; datagrams do not.

    The queue is longer than what TCP has in flight, but a round trip that grows beyond its timeout makes the
    kernel repeat segments, which is a sign as well.
    """
    lab = make_lab(LabSpec(hosts=3, enis=2))
    for host in range(2):  # behind the fabric: what waits at its own host TCP keeps short
        port = ("tc", "qdisc", "add", "dev", port_name(host, ENI))
        words = ("root", "tbf", "rate", "500mbit", "burst", "128kb", "latency", "400ms")
        run_command(run_inside(fabric_name(lab.prefix), *port, *words))
    with _make_job(lab, plugin_file) as job:
        poll_until("datagrams are tried", lambda: "try datagrams" in job.log(0) + job.log(1))
        job.finish()
        assert job.statistics()["tcp_troubles"] >= 1


@pytest.mark.timeout(TRIALS_S + 100)
def test_small_tcp_buffers_turn_the_choice(make_lab: MakeLab, plugin_file: Path) -> None:
    """Where TCP moves less, for whatever reason, experiments find it."""
    lab = make_lab(LabSpec(enis=2, tcp_buffer_kib=TCP_BUFFER_KIB))
    with Job(lab, plugin_file, sizes="512K", words=LONG, env=TCP) as job:
        poll_until("the choice turns", lambda: bool(TURNED.search(job.log(0) + job.log(1))), TRIALS_S)
        poll_until("the statistics say so", lambda: ("datagrams", "experiments") in _carriers_of_large(job))


@ENGINES
def test_tcp_stops_and_returns(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    """What was in flight goes over datagrams at once, and the connection is opened anew."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, LONG, HARP_ENGINE=engine) as job:
        job.until_moving()
        rule = _rule_for_data(job)
        for host in range(2):
            drop_packets(lab, host, rule)
        stopped = time.monotonic()
        poll_until("it was given up", lambda: ENDED in job.log(0) or ENDED in job.log(1))
        job.until_moving()
        assert time.monotonic() - stopped < STALL_S
        for host in range(2):
            drop_no_more(lab, host)
        poll_until("there is another", lambda: _with_data(lab, job) != "")
        job.until_moving(64 << 20)
        assert not any(job.warns(rank) for rank in range(2))


@CARRIERS
def test_connection_is_reset(make_lab: MakeLab, plugin_file: Path, carrier: str) -> None:
    """A middlebox resets the connection again and again."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, HARP_DRIVER=carrier) as job:
        job.until_moving()
        for _ in range(5):
            for rank in range(2):
                port = _read_port(job, rank)
                words = ("ss", "-K", "-n", "-t", f"( sport = :{port} or dport = :{port} )")
                run_command(run_inside(lab.hosts[0], *words))
            job.until_moving()
        job.finish()
        assert job.statistics()["tcp_ends"] >= 2


@CARRIERS
def test_an_interface_goes_and_returns(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """Each has a connection of its own: the job goes on over the other, then over both."""
    lab = make_lab(LabSpec(enis=2))
    with _start_striped(lab, plugin_file, tmp_path / "meeting", UNTIL_FINISHED, carrier) as job:
        job.until_moving()
        assert len(PORT.findall(job.log(0))) == 2
        for outage in range(3):
            lab.set_link(1, 1, up=False)
            job.until_moving(16 << 20)
            if not outage:  # later its connection may not be back yet
                poll_until("the end of its connection", lambda: "a TCP connection with" in job.log(0) + job.log(1))
            lab.set_link(1, 1, up=True)
            job.until_moving(16 << 20)
        job.end()
        assert job.wait() == [0, 0]
        assert all(result.wrong == 0 for result in job.report().results)
        assert job.statistics()["tx_records"] > 50


def test_small_messages_without_datagrams(make_lab: MakeLab, plugin_file: Path) -> None:
    """No UDP socket is opened at all."""
    lab = make_lab(LabSpec(enis=2))
    words = ("--iters", "2000", "--connections", "8")
    with Job(lab, plugin_file, mode="bidir", sizes="8", words=words, env={"HARP_DRIVER": "tcp"}) as job:
        job.finish()
        counters = job.statistics()
        assert (counters["tx_superframes"], counters["rx_superframes"]) == (0, 0)
        assert "path(s) from UDP port" not in job.log(0)


def test_ports_of_the_range(make_lab: MakeLab, plugin_file: Path, tmp_path: Path) -> None:
    """A firewall that lets these ports in is enough."""
    (tmp_path / "ztcp0.conf").write_text(
        f"[eni]\ninterface = {ENI}\n[transport]\ndriver = tcp\nports = 7000-7003\n"
    )
    lab = make_lab(LabSpec(enis=2))
    env = {"HARP_CONF_DIR": str(tmp_path)}
    with Job(lab, plugin_file, words=("--iters", "10"), env=env) as job:
        job.finish()
        assert all(7000 <= _read_port(job, rank) <= 7003 for rank in range(2))


@pytest.mark.parametrize(("carrier", "mode", "ways"), [("tcp", "stream", 1), ("udp+tcp", "bidir", 2)])
def test_flow_caps(make_lab: MakeLab, plugin_file: Path, carrier: str, mode: str, ways: int) -> None:
    """Where the network caps each flow, more connections are put to use, in both directions at once too.

    Kernels hold 50 to 100 ms of a capped connection, and each step of the search takes four round trips.
    """
    lab = make_lab(LabSpec(enis=2, flow_cap_mbps=100))
    env = {"HARP_DRIVER": carrier, "HARP_PATHS": "8"}
    with Job(lab, plugin_file, mode=mode, sizes="1M", words=UNTIL_FINISHED, env=env) as job:
        meter = Meter(job)
        poll_until("more than two connections carry each direction", lambda: meter.mbps() > ways * 220)
        assert "8 of TCP" in job.log(0)
        job.finish()


def test_nothing_in_common(make_lab: MakeLab, plugin_file: Path) -> None:
    """One sends datagrams only, the other none: an error with what to do."""
    lab = make_lab(LabSpec(enis=2))
    rank_env = ({"HARP_DRIVER": "tcp"}, {"HARP_DRIVER": "udp"})
    with Job(lab, plugin_file, sizes="64K", words=("--iters", "10"), rank_env=rank_env) as job:
        assert EXIT_PLUGIN in job.wait(30)
        assert any("configure the same driver" in line for rank in range(2) for line in job.warns(rank))


@CARRIERS
def test_peer_stopped_for_long(make_lab: MakeLab, plugin_file: Path, carrier: str) -> None:
    """A stopped peer is waited for, whatever the timeout; the kernel's buffers are full meanwhile."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file, HARP_PEER_TIMEOUT="1", HARP_DRIVER=carrier) as job:
        job.until_moving()
        job.ranks[1].send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        poll_until("two timeouts have passed", lambda: time.monotonic() > stopped + 2)
        assert job.ranks[0].poll() is None
        job.ranks[1].send_signal(signal.SIGCONT)
        job.until_moving()
        job.finish()


UNAUTHENTICATED = """
import os, socket, sys, time
address, port = sys.argv[1], int(sys.argv[2])
socks = []
for i in range(200):
    sock = socket.create_connection((address, port))
    sock.settimeout(0.2)
    try:
        sock.sendall(os.urandom(i) if i % 3 else b"\\0" * (64 * i))
    except OSError:
        pass
    socks.append(sock)
print("done", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def _connect_unauthenticated(lab: Lab, host: int, address: str, port: int) -> Iterator[None]:
    command = lab.command(host, ["python3", "-c", UNAUTHENTICATED, address, str(port)])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"done\n"
        yield
        child.kill()


def test_unauthenticated_connections(make_lab: MakeLab, plugin_file: Path) -> None:
    """Connections of others than the peer are refused and do not disturb the job."""
    lab = make_lab(LabSpec(enis=2))
    with _make_job(lab, plugin_file) as job:
        job.until_moving()
        with _connect_unauthenticated(lab, 0, lab.address(1), _read_port(job, 1)):
            job.until_moving(32 << 20)
        job.finish()
        assert job.statistics_of(1)["handshake_refused"] >= 100
