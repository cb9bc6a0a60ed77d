# SPDX-License-Identifier: Apache-2.0
"""Rates between two readings, what is called wrong, and the tables of `harpctl top`."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from harpctl.console import print_table
from harpctl.host.host import Host
from harpctl.stats import top
from harpctl.stats.command import _processes_table
from harpctl.stats.files import Found, find_processes
from harpctl.stats.layout import Row
from harpctl.stats.sample import PathRate, Sample, rate_text, sample_of, worst_path
from harpctl.stats.top import make_views
from tests.harpctl.stats.build import make_process, pack_page, write_page

ENIS: list[Row] = [{"id": 2, "name": "eth1"}, {"id": 3, "name": "eth2"}]


def make_rows(sent: int, packets: int, lost: int, state: str = "up", **session: int | str) -> dict[str, list[Row]]:
    """Return a process with a session of two paths; the second loses, and has the state."""
    one: Row = {
        "id": 4,
        "host": "n1",
        "state": "open",
        "peer_pid": 8,
        "sent_bytes": sent,
        "lost_packets": lost,
    }
    return {
        "engine": [{"id": 1}],
        "eni": ENIS,
        "session": [{**one, **session}],
        "path": [
            {"id": 5, "address": "10.0.0.1:9", "state": "up", "kind": "udp", "eni": 0, "tx_packets": packets},
            {
                "id": 6,
                "address": "10.0.1.1:9",
                "state": state,
                "kind": "udp",
                "eni": 1,
                "tx_packets": packets,
                "lost_packets": lost,
            },
        ],
    }


def make_reading(
    root: Path, pages: dict[int, dict[str, list[Row]]], *, age_s: float = 0.0, now_s: float | None = None
) -> Found:
    for pid, tables in pages.items():
        make_process(root, pid)
        write_page(root, pid, pack_page(pid, tables, age_s=age_s, now_s=now_s))
    return find_processes(Host(root))


def take_sample(
    root: Path, before: dict[int, dict[str, list[Row]]], after: dict[int, dict[str, list[Row]]]
) -> Sample:
    """Sample two readings that were written exactly a second apart."""
    now_s = time.monotonic()
    return sample_of(make_reading(root, before, age_s=1.0, now_s=now_s), make_reading(root, after, now_s=now_s))


def test_rates(tmp_path: Path) -> None:
    sample = take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: make_rows(125_000_000, 1000, 0)})
    (process,) = sample.processes
    assert process.out_bps == pytest.approx(1e9)
    assert (process.problem, process.severity) == ("", 0)
    assert sample.summary.startswith("1 processes, 1 sessions, ")


def test_a_new_entry_has_no_rate(tmp_path: Path) -> None:
    after = make_rows(125_000_000, 1000, 0)
    after["session"][0]["id"] = 99
    assert take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: after}).processes[0].out_bps == 0


def test_the_worst_comes_first(tmp_path: Path) -> None:
    before = {pid: make_rows(0, 0, 0) for pid in (10, 11, 12, 13)}
    after = {
        10: make_rows(1000, 1000, 0),
        11: make_rows(1000, 1000, 20),
        12: make_rows(1000, 1000, 0, state="silent", outstanding=3),
        13: make_rows(1000, 1000, 0) | {"session": [{"id": 4, "host": "n1", "state": "failed", "peer_pid": 8}]},
    }
    sample = take_sample(tmp_path, before, after)
    assert [process.pid for process in sample.processes] == [13, 12, 11, 10]
    assert sample.processes[0].problem == "n1 process 8: the session has failed: the job's log has the reason"
    assert sample.processes[1].problem == "n1 process 8: eth2 to 10.0.1.1:9: the path is silent"
    assert sample.processes[2].problem == "n1 process 8: eth2 to 10.0.1.1:9: 2 % lost"
    assert sample.processes[2].sessions[0].lost_percent == 1.0


def test_a_stall_and_its_reason(tmp_path: Path) -> None:
    after = make_rows(0, 0, 0, stall="no packet gets through", stall_eni="eth2", stalled_ns=12 * 10**9)
    sample = take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: after})
    assert sample.processes[0].problem == ("n1 process 8: NCCL has waited for 12 s: no packet gets through (eth2)")


def test_dormant_paths_are_not_wrong(tmp_path: Path) -> None:
    sample = take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: make_rows(0, 0, 0, state="dormant")})
    assert sample.processes[0].problem == ""


def test_those_that_ended_are_counted(tmp_path: Path) -> None:
    before = make_reading(tmp_path, {10: make_rows(0, 0, 0)}, age_s=1.0)
    write_page(tmp_path, 11, pack_page(11, make_rows(0, 0, 0)))
    after = make_reading(tmp_path, {10: make_rows(0, 0, 0)})
    assert (sample_of(before, after).ended, len(sample_of(before, after).processes)) == (1, 1)
    assert sample_of(before, after, with_ended=True).processes[0].state == "gone"


def test_tables(tmp_path: Path) -> None:
    sample = take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: make_rows(125_000_000, 1000, 20)})
    console = Console(width=200)
    with console.capture() as drawn:
        for view in make_views(sample, with_paths=True):
            assert isinstance(view, Table) or not view.plain
            console.print(view)
    lines = drawn.get().splitlines()
    assert lines[0].split()[:5] == ["pid", "rank", "state", "out", "in"]
    assert "n1:8" in drawn.get()
    assert any(line.startswith("eth2") and "2 " in line for line in lines)


def test_nothing_to_show(tmp_path: Path) -> None:
    empty = find_processes(Host(tmp_path))
    (text,) = make_views(sample_of(empty, empty), with_paths=False)
    assert str(text) == "No process here has HARP statistics."


def test_a_terminal_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(top, "OUT", Console(file=shown, force_terminal=True, width=200))
    samples = [take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: make_rows(0, 1000, lost)}) for lost in (0, 20)]
    top.watch_samples(iter(samples), 2, with_paths=False)
    assert "eth2 to 10.0.1.1:9: 2 % lost" in shown.getvalue()


def test_a_log_has_a_time_for_each_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = take_sample(tmp_path, {10: make_rows(0, 0, 0)}, {10: make_rows(0, 1000, 20)})
    top.log_samples(iter([sample] * 3), 2, with_paths=False)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 1 processes, ", line)]) == 2


@pytest.mark.parametrize(("bps", "shown"), [(0, "0"), (1500, "1.5k"), (2.5e6, "2.5M"), (98.76e9, "98.8G")])
def test_rates_are_short(bps: float, shown: str) -> None:
    assert rate_text(bps) == shown


def paths_of(*shape: str) -> tuple[PathRate, ...]:
    """Make paths of words "eni0>2 down": our interface, the last part of the peer's address, the state."""
    found = []
    for number, word in enumerate(shape):
        ends, _blank, state = word.partition(" ")
        eni, _to, address = ends.partition(">")
        where = f"10.0.0.{address}:{5000 + number}"
        found.append(
            PathRate(
                eni=eni,
                address=where,
                kind="udp",
                state=state,
                tx_bps=0,
                rx_bps=0,
                lost_percent=0,
                resent=0,
                probe_timeouts=1,
                rtt_ns=0,
                rtt_min_ns=0,
                packet_bytes=0,
                window_bytes=0,
                inflight_bytes=0,
            )
        )
    return tuple(found)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (("a>1 up", "b>2 up"), ""),
        (("a>1 up", "b>2 dormant", "b>1 new"), ""),
        (("a>1 down", "b>1 down", "a>2 up", "b>2 up"), "interface 10.0.0.1 of vm: all 2 paths are down"),
        (("a>1 down", "b>1 silent", "b>2 up"), "interface 10.0.0.1 of vm: all 2 paths are down/silent"),
        (("a>1 down", "a>2 down", "b>1 up", "b>2 dormant"), "our interface a: all 2 paths are down"),
        (("a>1 down", "a>2 down", "b>2 up"), "our interface a: all 2 paths are down"),
        (("a>1 down", "b>2 up"), "a to 10.0.0.1:5000: the path is down"),
        (("a>1 down", "a>1 down", "b>2 up"), "a to 10.0.0.1:5000: the path is down, and 1 more"),
        (("a>1 down", "b>2 down", "c>3 up"), "a to 10.0.0.1:5000: the path is down, and 1 more"),
        (("a>1 up", "a>2 down", "b>1 down", "b>2 down"), "b to 10.0.0.2:5003: the path is down, and 2 more"),
        (("a>1 down", "a>2 down", "b>1 down", "b>2 up"), "a to 10.0.0.1:5000: the path is down, and 2 more"),
        (("a>1 up", "a>2 up", "b>1 down", "b>2 down"), "our interface b: all 2 paths are down"),
        (("a>1 down", "a>1 up"), "a to 10.0.0.1:5000: the path is down"),
        (("a>1 down",), "a to 10.0.0.1:5000: the path is down"),
        (("a>1 down", "b>2 silent"), "all 2 paths are down/silent"),
        (("a>1 down", "b>2 down", "b>1 dormant"), "all 2 paths are down"),
    ],
)
def test_the_broken_interface_is_named(shape: tuple[str, ...], said: str) -> None:
    severity, problem = worst_path("vm", paths_of(*shape), 1)
    assert problem == said
    assert severity == (70 if said else 0)


def test_what_another_user_put_into_a_process_does_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page(tmp_path, 10, pack_page(10, make_rows(0, 1000, 20)))
    make_process(tmp_path, 10, RANK="0\x1b]0;PWN\x07\x1b[2J")
    (tmp_path / "proc/10/cmdline").write_text("train\x1b]0;OWN\x07\0")
    found = find_processes(Host(tmp_path))
    sample = sample_of(found, found)
    top.log_samples(iter([sample]), 1, with_paths=True)
    print_table(_processes_table(found))
    out = capsys.readouterr().out
    assert "]0;OWN" in out, "the command is shown"
    assert "PWN" not in out, "what is no number is no rank"
    assert "\x1b" not in out
    assert "\x07" not in out
