# SPDX-License-Identifier: Apache-2.0
"""Draws a history: packet numbers of a session's paths over time, with losses, and below them the windows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harpctl.errors import ExitCode, HarpError
from harpctl.trace.clock import SENDING
from harpctl.trace.history import History, HistoryEvent
from harplab.plotting import require_plot, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot", "require_plot"]

MARKS = {  # events at a packet number: marker, colour, label
    "TX_AGAIN": ("^", "tab:orange", "sent again"),
    "TX_DUPLICATE": (".", "tab:olive", "duplicate"),
    "TX_PROBE": ("|", "tab:purple", "probe"),
    "LOST": ("x", "tab:red", "found lost"),
    "SPURIOUS": ("o", "tab:green", "was only late"),
}
PATHS_MAX = 4  # drawn; those with most events
POINTS_MAX = 4000  # the most points of one kind on one path: each n-th of more
DPI = 80


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    step = len(points) // POINTS_MAX + 1
    return list(points[::step])


def _busiest(history: History) -> tuple[int, int]:
    """Return the side and the session that sends most: what is drawn."""
    sent = Counter(
        (entry.side, entry.mark) for entry in history.events if entry.event.kind.name == "TX_DATA" and entry.mark
    )
    if not sent:
        raise HarpError(
            "There is nothing to draw.",
            "No session of these recordings has sent anything.",
            ExitCode.WRONG_DATA,
        )
    return sent.most_common(1)[0][0]


class _Path:
    """The drawn events of one path: numbers count from the first that is recorded."""

    def __init__(self, events: Sequence[HistoryEvent], begin_ns: int, sender: int) -> None:
        self.begin_ns = begin_ns
        own = [entry for entry in events if entry.side == sender]
        sent = [
            entry.event.number for entry in own if entry.event.kind.name in SENDING and entry.at_ns >= begin_ns
        ]
        self.first = min(sent, default=0)
        self.points: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for entry in own:
            self._add_event(entry)
        for entry in events:
            if entry.side != sender and entry.event.kind.name in {"TX_ACK", "RX_GAP"}:
                self._add_point(f"far {entry.event.kind.name}", entry, entry.event.number)

    def _add_point(self, what: str, entry: HistoryEvent, value: float) -> None:
        if entry.at_ns >= self.begin_ns:
            self.points[what].append(((entry.at_ns - self.begin_ns) / 1e6, value))

    def _add_event(self, entry: HistoryEvent) -> None:
        event, name = entry.event, entry.event.kind.name
        if name in SENDING or name in MARKS or name == "RX_ACK":
            self._add_point(name, entry, event.number + (event.count - 1 if name == "TX_DATA" else 0))
        if name == "RX_ACK":
            self._add_point("window", entry, event.b / 1024)
        elif name == "WINDOW":
            self._add_point("window", entry, event.a / 1024)
        elif name == "PTO":
            self._add_point("timeout", entry, 0)
        elif name == "PATH_STATE":
            self._add_point(f"state {event.word('b')}", entry, 0)

    def numbers(self, what: str) -> tuple[list[float], list[float]]:
        """Return times and packet numbers of a kind."""
        points = _thinned([(x, y - self.first) for x, y in self.points.get(what, []) if y >= self.first])
        return [x for x, _ in points], [y for _, y in points]

    def values(self, what: str) -> tuple[list[float], list[float]]:
        points = _thinned(self.points.get(what, []))
        return [x for x, _ in points], [y for _, y in points]


def _draw_path(axes: Axes, path: _Path, name: str) -> None:
    axes.plot(*path.numbers("TX_DATA"), ".", color="tab:blue", markersize=2, label="sent")
    axes.plot(*path.numbers("far TX_ACK"), "-", color="tab:cyan", linewidth=0.8, label="arrived there")
    axes.plot(*path.numbers("RX_ACK"), "-", color="tab:gray", linewidth=0.8, label="acknowledged")
    axes.plot(*path.numbers("far RX_GAP"), "+", color="tab:brown", markersize=6, label="gap seen there")
    for what, (marker, colour, label) in MARKS.items():
        axes.plot(*path.numbers(what), marker, color=colour, markersize=5, linestyle="none", label=label)
    for x in path.values("timeout")[0]:
        axes.axvline(x, color="tab:red", linewidth=0.6, linestyle=":")
    for what in path.points:
        if what.startswith("state "):
            for x in path.values(what)[0]:
                axes.axvline(x, color="black", linewidth=0.6)
                axes.annotate(
                    what.removeprefix("state "), (x, 0.02), xycoords=("data", "axes fraction"), fontsize=7
                )
    axes.set_ylabel("packets")
    axes.set_title(name, fontsize=8, loc="left")


def plot(file: Path, history: History, span_ms: float = 0.0) -> None:
    """Draw the session that sends most, or the last span_ms of it; `require_plot` has been called."""
    from matplotlib import pyplot as plt  # noqa: PLC0415

    sender, mark = _busiest(history)
    events = [entry for entry in history.events if entry.mark == mark]
    by_path: dict[int, list[HistoryEvent]] = defaultdict(list)
    used = Counter(
        entry.event.path for entry in events if entry.side == sender and entry.event.kind.name == "TX_DATA"
    )
    shown = sorted(path for path, _ in used.most_common(PATHS_MAX))
    flow = [entry.at_ns for entry in events if entry.side == sender and entry.event.kind.part == "FLOW"]
    end_ns = max(flow)
    begin_ns = max(min(flow), end_ns - int(span_ms * 1e6) if span_ms else 0)
    for entry in events:
        if entry.at_ns <= end_ns:
            by_path[entry.event.path].append(entry)
    side = history.sides[sender]
    session = side.sessions.get(mark)
    figure, rows = plt.subplots(
        len(shown) + 1,
        1,
        sharex=True,
        figsize=(9, 2.2 + 2.0 * len(shown)),
        layout="constrained",
        squeeze=False,
    )
    window = rows[-1][0]
    for row, number in zip(rows[:-1], shown, strict=True):
        path = _Path(by_path[number], begin_ns, sender)
        name = session.paths.get(number, "") if session else ""
        _draw_path(row[0], path, f"path {number} {name}")
        window.plot(*path.values("window"), linewidth=0.8, label=f"path {number}")
    handles, labels = rows[0][0].get_legend_handles_labels()
    seen = [(handle, label) for handle, label in zip(handles, labels, strict=True) if len(handle.get_xdata())]
    rows[0][0].legend(*zip(*seen, strict=True), fontsize=7, loc="lower right")
    window.legend(fontsize=7, loc="upper left")
    window.set_ylabel("window (KiB)")
    window.set_ylim(bottom=0)
    window.set_xlabel("time (ms)")
    figure.suptitle(f"{side.title()} sends to {session.peer if session else 'a peer'}", fontsize=10)
    save_figure(file, figure, DPI)
