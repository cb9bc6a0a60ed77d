# SPDX-License-Identifier: Apache-2.0
"""`harpctl export`: the statistics for Prometheus, over HTTP or as a file for node_exporter."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harpctl.command_line import FILE, command, json_option, option
from harpctl.console import OUT, print_json, print_lines
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.stats.files import Process, fields_of, find_processes
from harpctl.stats.metrics import PEERS_MAX, Metric, Totals, metrics_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

INTERVAL_S = 15.0
PORT = 9472
TEXTFILE_SUFFIX = ".prom"


def _read_descriptions(host: Host, process: Process) -> dict[str, str]:
    """Return the counters of engines, and what they mean, as a process's file describes them."""
    fields = fields_of(host, process).get("engine", ())
    return {field.name: field.text for field in fields if field.kind == "C"}


class Collector:
    """The collector that prometheus_client calls for the metrics at each scrape."""

    def __init__(self, host: Host, peers_max: int = PEERS_MAX) -> None:
        self._host = host
        self._peers_max = peers_max
        self._totals = Totals()
        self._described: dict[str, str] = {}
        self._lock = threading.Lock()  # scrapes come from several threads

    def metrics(self) -> list[Metric]:
        """Read the files, and return the metrics."""
        with self._lock:
            found = find_processes(self._host)
            for process in found.processes:
                self._described = self._described or _read_descriptions(self._host, process)
            return list(metrics_of(found, self._described, self._totals, self._peers_max))

    def collect(self) -> Iterator[Family]:
        """Return them as prometheus_client's."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        for metric in self.metrics():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=metric.labels)
            for point in metric.points:
                family.add_metric(point.labels, point.value)
            yield family


def _make_registry(collector: Collector) -> CollectorRegistry:
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  (optional)
    except ImportError:
        raise HarpError(
            "Metrics need prometheus_client.", "pip install 'harpctl[metrics]'", ExitCode.MISSING
        ) from None
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _parse_address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise HarpError(
            f"--listen {listen}: this is no address with a port.",
            f"Write it as 127.0.0.1:{PORT} or :{PORT}.",
            ExitCode.USAGE,
        )
    return host.strip("[]") or "::", int(port)


def _serve_http(registry: CollectorRegistry, listen: str) -> None:
    from prometheus_client import start_http_server  # noqa: PLC0415

    address, port = _parse_address(listen)
    try:
        _, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise HarpError(
            f"--listen {listen}: {error.strerror}.", "Choose another port, or end what listens there."
        ) from None
    OUT.print(f"Serving /metrics on port {port}; ctrl-C ends it.")
    thread.join()


def _write_textfile(registry: CollectorRegistry, textfile: Path, interval_s: float) -> None:
    from prometheus_client import write_to_textfile  # noqa: PLC0415

    if textfile.suffix != TEXTFILE_SUFFIX:
        raise HarpError(
            f"--textfile {textfile}: node_exporter reads files that end in {TEXTFILE_SUFFIX}.",
            f"Name it harp{TEXTFILE_SUFFIX}, in the directory of --collector.textfile.directory.",
            ExitCode.USAGE,
        )
    while True:
        try:
            write_to_textfile(str(textfile), registry)
        except OSError as error:
            raise HarpError(
                f"{textfile} can't be written: {error.strerror}.", "Does its directory exist?"
            ) from None
        if not interval_s:
            return
        time.sleep(interval_s)


@command()
@option("--listen", metavar="[ADDRESS]:PORT", default="", help="Serve /metrics there until ctrl-C.")
@option("--textfile", metavar="FILE", type=FILE, help="Write it for node_exporter, atomically.")
@option(
    "--interval",
    "interval_s",
    metavar="S",
    type=click.FloatRange(0),
    default=INTERVAL_S,
    help="Seconds between two writes; 0: once.",
)
@option(
    "--peers",
    "peers_max",
    metavar="N",
    type=click.IntRange(0),
    default=PEERS_MAX,
    help="Peers of a process with series of their own.",
)
@json_option
def export(*, listen: str, textfile: Path | None, interval_s: float, peers_max: int, as_json: bool) -> None:
    """Export the statistics to Prometheus: over HTTP, as a file, or without either once on standard output.

    docs/how-to/grafana has a dashboard and alerts for them. Processes of other users are seen by root.
    """
    if listen and textfile:
        raise HarpError("--listen and --textfile exclude each other.", "Run it twice.", ExitCode.USAGE)
    collector = Collector(Host(), peers_max)
    if as_json:
        print_json(collector.metrics())
        return
    registry = _make_registry(collector)
    if listen:
        _serve_http(registry, listen)
    elif textfile:
        _write_textfile(registry, textfile, interval_s)
    else:
        from prometheus_client import generate_latest  # noqa: PLC0415

        print_lines(generate_latest(registry).decode())
