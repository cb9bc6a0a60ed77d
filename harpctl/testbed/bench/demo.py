# SPDX-License-Identifier: Apache-2.0
"""`harpctl demo`: a first run, between two hosts of namespaces or, where none can be made, over loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from harpctl.console import ERR, Console
from harpctl.errors import HarpError
from harpctl.testbed.bench.command import (
    DEFAULT_SIZES,
    LATENCY_SIZES,
    build_side,
    find_program,
    interrupted_by_signals,
    require_right_bytes,
)
from harpctl.testbed.bench.hosts import Hosts, LabHosts, LoopbackHosts
from harpctl.testbed.bench.measure import measure
from harpctl.testbed.bench.perf import Mode, PerfJob
from harpctl.testbed.bench.report import document, print_measured
from harpctl.testbed.bench.sizes import parse_sizes
from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.spec import LabSpec

TIME_S = 0.5  # per size
JOBS = (
    ("Half round trip", Mode.PINGPONG, LATENCY_SIZES),
    ("Stream", Mode.STREAM, DEFAULT_SIZES),
)


@contextlib.contextmanager
def _places() -> Iterator[tuple[Hosts, str]]:
    """Provide two hosts and a line that describes them."""
    spec = LabSpec()
    with contextlib.ExitStack() as stack:
        try:
            lab = stack.enter_context(Lab(spec))
        except HarpError as error:
            ERR.print(f"No namespaces ({error.message}): two processes over the loopback interface.")
            yield LoopbackHosts(), "2 processes over the loopback interface"
            return
        ERR.print("Two hosts in network namespaces, joined by a veth pair.")
        yield LabHosts(lab), f"lab: {spec.describe()}"


def demo(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print both results as JSON, as bench does, in a list.")
    ] = False,
) -> None:
    """Send checked messages of all sizes between two hosts made of network namespaces.

    Without root, or without the tools that make namespaces, between two processes over loopback.
    """
    sides = [build_side(None, find_program(None, "harp-perf"), [])]
    documents = []
    with interrupted_by_signals(), _places() as (hosts, place):
        for title, mode, sizes in JOBS:
            ERR.print(f"{title}, every byte checked:")
            job = PerfJob(mode=mode.value, sizes_bytes=parse_sizes(sizes), time_s=TIME_S)
            measured = measure(hosts, sides, job, 1, lambda _text: None)
            documents.append(document(place, job, 1, sides, measured))
            if not as_json:
                print_measured(Console(), place, job, 1, measured, [])
            require_right_bytes(sum(row.wrong or 0 for row in measured.rows[0]))
    if as_json:
        typer.echo(b"[" + b",".join(documents) + b"]")
