# SPDX-License-Identifier: Apache-2.0
"""Compares two readings of the statistics files: rates, and what is wrong, worst first."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from harpctl.stats.files import Found, Process, Unread
from harpctl.stats.layout import Page, Row, rows_by

LOSS_PERCENT = 0.1  # the share of packets sent; less is not called wrong
IDLE_STATES = {"dormant", "new"}
BROKEN_STATES = {"down", "silent"}
# The severity of a problem: the lines of `harpctl top` are in its order, and a process shows the worst one.
# 100: a session has failed; 90: NCCL waits; 80: the process does not run; 70 and 50: paths are broken, with
# requests that wait and without; 30 to 40: loss, by its percentage; 10: the process is out of reach; 0: none.
PROBLEM_OF_STATE = {
    "stopped": (80, "the process is stopped (SIGSTOP, or a debugger): `kill -CONT {pid}`"),
    "late": (80, "no engine has run for {late_s:.0f} s: the process lacks a core, or hangs in the kernel"),
    "gone": (10, "the process ended without closing its connections: these are its last values"),
    "elsewhere": (10, "a process of another container; it has not written for {late_s:.0f} s"),
}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of paths and sessions over the sample's time."""

    state: str
    lost_percent: float
    resent: int
    probe_timeouts: int
    rtt_ns: int
    rtt_min_ns: int
    window_bytes: int
    inflight_bytes: int


class PathRate(Rates, frozen=True, kw_only=True):
    """A path over the sample's time."""

    eni: str
    address: str
    kind: str
    tx_bps: float
    rx_bps: float
    packet_bytes: int  # payload of a full packet


class SessionRate(Rates, frozen=True, kw_only=True):
    """A session over the sample's time."""

    pid: int
    host: str
    peer_pid: int
    out_bps: float  # payload of messages
    in_bps: float
    streams: int
    outstanding: int
    severity: int
    problem: str  # "" where nothing is wrong
    paths: tuple[PathRate, ...]


class ProcessRate(msgspec.Struct, frozen=True, kw_only=True):
    """A process over the sample's time."""

    pid: int
    rank: str
    state: str
    command: str
    out_bps: float
    in_bps: float
    streams: int
    outstanding: int
    lost: int
    resent: int
    severity: int
    problem: str
    sessions: tuple[SessionRate, ...]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """All processes of a host over some time; the worst come first."""

    summary: str
    seconds: float
    ended: int  # processes that ended without closing their connections, and are left out
    processes: tuple[ProcessRate, ...]
    unread: tuple[Unread, ...]


class _Change:
    """The growth of a process's counters between two pages."""

    def __init__(self, before: Page | None, after: Page) -> None:
        self.seconds = (after.updated_ns - before.updated_ns) / 1e9 if before else 0.0
        tables = before.tables if before else {}
        self.paths = rows_by(after.tables.get("path", []), "session")
        self.enis = {eni["index"]: text_of(eni, "name") for eni in after.tables.get("eni", [])}
        self._before = {(table, row["id"]): row for table, rows in tables.items() for row in rows}

    def grown(self, table: str, row: Row, name: str) -> int:
        """Return by how much a counter grew; 0 for an entry that was not there before."""
        before = self._before.get((table, row["id"]))
        return 0 if before is None else max(number_of(row, name) - number_of(before, name), 0)

    def common(self, table: str, row: Row, sent: int) -> dict[str, Any]:
        """Return the fields of Rates, of an entry that sent so many packets."""
        numbers = ("rtt_ns", "rtt_min_ns", "window_bytes", "inflight_bytes")
        return {
            "state": text_of(row, "state"),
            "lost_percent": _percent_of(self.grown(table, row, "lost_packets"), sent),
            "resent": self.grown(table, row, "resent_packets"),
            "probe_timeouts": self.grown(table, row, "probe_timeouts"),
            **{name: number_of(row, name) for name in numbers},
        }

    def per_second(self, table: str, row: Row, name: str) -> float:
        return self.grown(table, row, name) / self.seconds if self.seconds > 0 else 0.0


def number_of(row: Row, name: str) -> int:
    """Return a number of an entry; 0 where the file's version does not have it."""
    value = row.get(name, 0)
    return value if isinstance(value, int) else 0


def text_of(row: Row, name: str) -> str:
    """Return a text of an entry; "" where the file's version does not have it."""
    return str(row.get(name, ""))


def _percent_of(part: int, whole: int) -> float:
    return round(100 * part / whole, 3) if whole > 0 else 0.0


def _path_rate(change: _Change, row: Row) -> PathRate:
    return PathRate(
        eni=change.enis.get(row.get("eni", -1), "?"),
        address=text_of(row, "address"),
        kind=text_of(row, "kind"),
        tx_bps=8 * change.per_second("path", row, "tx_bytes"),
        rx_bps=8 * change.per_second("path", row, "rx_bytes"),
        packet_bytes=number_of(row, "packet_bytes"),
        **change.common("path", row, change.grown("path", row, "tx_packets")),
    )


def worst_path(host: str, paths: tuple[PathRate, ...], outstanding: int) -> tuple[int, str]:
    """Return how bad the paths to a host are, and what is wrong with an interface or the worst path."""
    if broken := [path for path in paths if path.state in BROKEN_STATES]:
        return (70 if outstanding else 50), _explain_broken(host, broken, paths)
    lossy = max(paths, key=lambda path: path.lost_percent, default=None)
    if lossy is None or lossy.lost_percent < LOSS_PERCENT:
        return 0, ""
    where = f"{lossy.eni} to {lossy.address}"
    return 30 + int(min(lossy.lost_percent, 10)), f"{where}: {lossy.lost_percent:.2g} % lost"


def _explain_broken(host: str, broken: list[PathRate], paths: tuple[PathRate, ...]) -> str:
    """Name the interface that explains the most broken paths: one that no working path uses.

    Where several paths are broken and none works, that is the host, or our network; where no interface, or
    more than one, explains as many, each path speaks for itself, first that of the interfaces with most.
    """
    working = [path for path in paths if path.state not in BROKEN_STATES | IDLE_STATES]
    states = "/".join(sorted({path.state for path in broken}))
    if len(broken) > 1 and not working:
        return f"all {len(broken)} paths are {states}"
    ours = Counter(path.eni for path in broken)
    theirs = Counter(_ip_of_path(path) for path in broken)
    for path in working:
        ours.pop(path.eni, None)
        theirs.pop(_ip_of_path(path), None)
    found = [(count, f"our interface {eni}") for eni, count in ours.items()]
    found += [(count, f"interface {ip} of {host}") for ip, count in theirs.items()]
    most = max((count for count, _name in found), default=0)
    names = [name for count, name in found if count == most]
    if most > 1 and len(names) == 1:
        return f"{names[0]}: all {most} paths are {states}"
    first = min(broken, key=lambda path: (-ours[path.eni] - theirs[_ip_of_path(path)], path.eni, path.address))
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    return f"{first.eni} to {first.address}: the path is {first.state}{more}"


def _ip_of_path(path: PathRate) -> str:
    return path.address.rpartition(":")[0].strip("[]")


def _session_rate(change: _Change, row: Row, pid: int) -> SessionRate:
    rows = change.paths.get(row["index"], [])
    paths = tuple(_path_rate(change, path) for path in rows)
    outstanding = number_of(row, "outstanding")
    severity, problem = worst_path(text_of(row, "host"), paths, outstanding)
    if text_of(row, "stall"):
        where = f" ({text_of(row, 'stall_eni')})" if text_of(row, "stall_eni") else ""
        seconds = number_of(row, "stalled_ns") // 10**9
        severity, problem = 90, f"NCCL has waited for {seconds} s: {text_of(row, 'stall')}{where}"
    if text_of(row, "state") != "open":
        severity, problem = 100, f"the session has {text_of(row, 'state')}: the job's log has the reason"
    sent = sum(change.grown("path", path, "tx_packets") for path in rows)
    return SessionRate(
        pid=pid,
        host=text_of(row, "host"),
        peer_pid=number_of(row, "peer_pid"),
        out_bps=8 * change.per_second("session", row, "sent_bytes"),
        in_bps=8 * change.per_second("session", row, "received_bytes"),
        streams=number_of(row, "stream_count"),
        outstanding=outstanding,
        severity=severity,
        problem=problem,
        paths=paths,
        **change.common("session", row, sent),
    )


def _process_rate(before: Page | None, process: Process) -> ProcessRate:
    change = _Change(before, process.page)
    rows = process.page.tables.get("session", [])
    sessions = sorted((_session_rate(change, row, process.pid) for row in rows), key=lambda one: -one.severity)
    severity, sentence = PROBLEM_OF_STATE.get(process.state, (0, ""))
    problem = sentence.format(pid=process.pid, late_s=process.late_s)
    if sessions and sessions[0].severity > severity:
        worst = sessions[0]
        severity, problem = worst.severity, f"{worst.host} process {worst.peer_pid}: {worst.problem}"
    return ProcessRate(
        pid=process.pid,
        rank=process.rank,
        state=process.state,
        command=process.command,
        out_bps=sum(session.out_bps for session in sessions),
        in_bps=sum(session.in_bps for session in sessions),
        streams=len(process.page.tables.get("stream", [])),
        outstanding=sum(session.outstanding for session in sessions),
        lost=sum(change.grown("session", row, "lost_packets") for row in rows),
        resent=sum(session.resent for session in sessions),
        severity=severity,
        problem=problem,
        sessions=tuple(sessions),
    )


def rate_text(bps: float) -> str:
    """Return a rate in bits a second as people write it."""
    for unit, divisor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bps >= divisor:
            return f"{bps / divisor:.1f}{unit}"
    return f"{bps:.0f}"


def _summarize_rates(processes: list[ProcessRate]) -> str:
    sessions = sum(len(process.sessions) for process in processes)
    out, into = sum(one.out_bps for one in processes), sum(one.in_bps for one in processes)
    wrong = [f"process {one.pid}: {one.problem}" for one in processes if one.problem]
    rates = f"{rate_text(out)}bit/s out, {rate_text(into)}bit/s in"
    summary = f"{len(processes)} processes, {sessions} sessions, {rates}"
    return f"{summary}; {wrong[0]}" if wrong else summary


def sample_of(before: Found, after: Found, *, with_ended: bool = False) -> Sample:
    """Return what happened between two readings; with_ended also of processes that are gone."""
    shown = [process for process in after.processes if with_ended or process.state != "gone"]
    pages = {process.file: process.page for process in before.processes}
    processes = [_process_rate(pages.get(process.file), process) for process in shown]
    processes.sort(key=lambda one: (-one.severity, one.pid))
    seconds = max(
        ((p.page.updated_ns - pages[p.file].updated_ns) / 1e9 for p in after.processes if p.file in pages),
        default=0.0,
    )
    return Sample(
        summary=_summarize_rates(processes),
        seconds=round(seconds, 3),
        ended=len(after.processes) - len(shown),
        processes=tuple(processes),
        unread=after.unread,
    )
