# SPDX-License-Identifier: Apache-2.0
"""The statistics as Prometheus metrics: names, units and labels by its conventions, in a bounded number.

Engines and interfaces have a series each; sessions are added up by the peer's host name, paths by their
interface and state. The first peers of a process have series of their own, and the rest shares one, so
that a large job does not flood the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from harpctl.stats.files import Found, Process
from harpctl.stats.layout import Row
from harpctl.stats.sample import number_of, text_of

PEERS_MAX = 64  # the most peers of a process with series of their own
OTHER = "other"
DROP = "drop_"
NS = 1e9


class Point(msgspec.Struct, frozen=True):
    """A value of a metric with the values of its labels."""

    labels: tuple[str, ...]
    value: float


class Metric(msgspec.Struct, frozen=True):
    """A metric family; the name of a counter is without `_total`."""

    name: str
    kind: str  # "counter" or "gauge"
    text: str
    labels: tuple[str, ...]
    points: list[Point]


Key = tuple[str, ...]


class Totals:
    """Sums of counters over entries that come and go: a sum never falls when one of them goes."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str], int] = {}
        self._sums: Counter[tuple[Key, str]] = Counter()
        self._peers: dict[str, set[str]] = {}

    def add(self, key: Key, field: str, process: Process, row: Row) -> None:
        """Add to a sum what a counter of an entry has grown by since it was added last."""
        entry = (process.file, number_of(row, "id"), field)
        value = number_of(row, field)
        self._sums[key, field] += value - self._last.get(entry, 0)
        self._last[entry] = value

    def sum(self, key: Key, field: str) -> float:
        """Return a sum."""
        return float(self._sums[key, field])

    def peer_name(self, process: Process, row: Row, most: int) -> str:
        """Return the host of a session's peer; OTHER where the process has `most` other ones already."""
        named = self._peers.setdefault(process.file, set())
        host = text_of(row, "host")
        if host not in named and len(named) >= most:
            return OTHER
        named.add(host)
        return host

    def forget(self, found: Found) -> None:
        """Forget the processes that are gone."""
        files = {process.file for process in found.processes}
        names = {process.name for process in found.processes}
        self._last = {entry: value for entry, value in self._last.items() if entry[0] in files}
        self._sums = Counter({key: value for key, value in self._sums.items() if key[0][0] in names})
        self._peers = {file: named for file, named in self._peers.items() if file in files}


ENGINE_COUNTERS = {
    # field: metric where the convention wants another name than the field's
    "rx_bytes": "received_bytes",
    "tx_bytes": "sent_bytes",
    "rx_packets": "received_packets",
    "tx_packets": "sent_packets",
}
ENI_COUNTERS = {"tx_bytes": "sent_bytes", "tx_packets": "sent_packets", "rx_bytes": "received_bytes"}
PEER_COUNTERS = {
    "sent_bytes": "Payload of messages that a peer has acknowledged whole",
    "sent_messages": "Messages that a peer has acknowledged whole",
    "received_bytes": "Payload of messages received whole from a peer",
    "received_messages": "Messages received whole from a peer",
    "lost_packets": "Packets to a peer found lost",
    "resent_packets": "Packets to a peer that repeat lost data",
    "probe_timeouts": "Probe timeouts of the paths to a peer",
}
PEER_GAUGES: dict[str, tuple[str, str, Callable[[Iterable[int]], int], float]] = {
    # field: metric, its text, how those of several sessions become one value, and the unit
    "outstanding": ("outstanding_requests", "Requests that NCCL or RCCL waits for with a peer", sum, 1.0),
    "inflight_bytes": ("inflight_bytes", "Sent to a peer, neither acknowledged nor lost", sum, 1.0),
    "stalled_ns": (
        "stalled_seconds",
        "For how long the worst session with a peer has moved nothing",
        max,
        NS,
    ),
    "rtt_ns": ("rtt_seconds", "Highest smoothed RTT of the sessions with a peer", max, NS),
}
ENI_TEXTS = {
    "tx_bytes": "Bytes of data sent by an interface, with headers",
    "tx_packets": "Packets of data and probes sent by an interface",
    "rx_bytes": "Bytes of data received by an interface, with headers",
    "lost_packets": "Packets sent by an interface and found lost",
    "resent_packets": "Packets sent by an interface that repeat lost data",
    "probe_timeouts": "Probe timeouts of the paths of an interface",
}
PATH_STATES = ("new", "up", "silent", "down", "dormant")


def _process_labels(process: Process) -> tuple[str, str]:
    return process.name, process.rank


def _engine_name(row: Row) -> tuple[str, str]:
    return text_of(row, "name"), str(number_of(row, "number"))


def _process_metrics(found: Found) -> Iterator[Metric]:
    late = [Point(_process_labels(one), max(one.late_s, 0.0)) for one in found.processes]
    yield Metric(
        "harp_process_late_seconds", "gauge", "Time since an engine of the process ran", ("pid", "rank"), late
    )
    missing = [Point(_process_labels(one), float(sum(one.page.missing.values()))) for one in found.processes]
    yield Metric(
        "harp_process_missing_entries", "gauge", "Entries without room in the file", ("pid", "rank"), missing
    )
    yield Metric(
        "harp_unreadable_files", "gauge", "Statistics files that could not be read", (),
        [Point((), float(len(found.unread)))],
    )  # fmt: skip


def _each_row(found: Found, table: str) -> Iterator[tuple[Process, Row]]:
    for process in found.processes:
        for row in process.page.tables.get(table, []):
            yield process, row


def _engine_metrics(found: Found, described: dict[str, str]) -> Iterator[Metric]:
    labels = ("pid", "rank", "enis", "engine")
    for field, meaning in described.items():
        name = ENGINE_COUNTERS.get(field, field)
        points = [
            Point((*_process_labels(process), *_engine_name(row)), float(number_of(row, field)))
            for process, row in _each_row(found, "engine")
        ]
        yield Metric(f"harp_engine_{name}", "counter", f"Of an engine: {meaning}", labels, points)


def _drop_metrics(found: Found) -> Iterator[Metric]:
    points = [
        Point(
            (*_process_labels(process), *_engine_name(row), name.removeprefix(DROP).lower()),
            float(number_of(row, name)),
        )
        for process, row in _each_row(found, "engine")
        for name in row
        if name.startswith(DROP)
    ]
    labels = ("pid", "rank", "enis", "engine", "reason")
    yield Metric("harp_engine_dropped_packets", "counter", "Packets dropped, by reason", labels, points)


def _eni_metrics(found: Found, totals: Totals) -> Iterator[Metric]:
    keys: dict[Key, None] = {}
    for process, row in _each_row(found, "eni"):
        key = (*_process_labels(process), text_of(row, "name"))
        keys[key] = None
        for field in ENI_TEXTS:
            totals.add(key, field, process, row)
    for field, meaning in ENI_TEXTS.items():
        points = [Point(key, totals.sum(key, field)) for key in keys]
        name = f"harp_eni_{ENI_COUNTERS.get(field, field)}"
        yield Metric(name, "counter", meaning, ("pid", "rank", "eni"), points)


def _path_metrics(found: Found) -> Iterator[Metric]:
    counts: Counter[tuple[str, ...]] = Counter()
    for process in found.processes:
        names = {row["index"]: text_of(row, "name") for row in process.page.tables.get("eni", [])}
        for eni in set(names.values()):
            counts.update({(*_process_labels(process), eni, state): 0 for state in PATH_STATES})
        for row in process.page.tables.get("path", []):
            key = (*_process_labels(process), names.get(row.get("eni", -1), "?"), text_of(row, "state"))
            counts[key] += 1
    points = [Point(labels, float(count)) for labels, count in counts.items()]
    labels = ("pid", "rank", "eni", "state")
    yield Metric("harp_eni_paths", "gauge", "Paths of an interface, by state", labels, points)


def _peer_metrics(found: Found, totals: Totals, most: int) -> Iterator[Metric]:
    labels = ("pid", "rank", "peer")
    groups: dict[Key, list[Row]] = {}
    for process, row in _each_row(found, "session"):
        key = (*_process_labels(process), totals.peer_name(process, row, most))
        groups.setdefault(key, []).append(row)
        for field in PEER_COUNTERS:
            totals.add(key, field, process, row)
    for field, meaning in PEER_COUNTERS.items():
        points = [Point(key, totals.sum(key, field)) for key in groups]
        yield Metric(f"harp_peer_{field}", "counter", meaning, labels, points)
    for field, (name, meaning, combine, divisor) in PEER_GAUGES.items():
        points = [
            Point(key, combine(number_of(row, field) for row in rows) / divisor) for key, rows in groups.items()
        ]
        yield Metric(f"harp_peer_{name}", "gauge", meaning, labels, points)


def metrics_of(
    found: Found, described: dict[str, str], totals: Totals, peers_max: int = PEERS_MAX
) -> Iterator[Metric]:
    """Return the metrics of all processes that run; `described` are the counters of engines and their texts.

    The totals are the caller's, kept from one call to the next.
    """
    running = tuple(process for process in found.processes if process.state != "gone")
    alive = Found(processes=running, unread=found.unread)
    totals.forget(alive)
    yield from _process_metrics(alive)
    yield from _engine_metrics(alive, {name: meaning for name, meaning in described.items() if DROP not in name})
    yield from _drop_metrics(alive)
    yield from _eni_metrics(alive, totals)
    yield from _path_metrics(alive)
    yield from _peer_metrics(alive, totals, peers_max)
