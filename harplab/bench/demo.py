# SPDX-License-Identifier: Apache-2.0
"""`harpctl demo`: a first run, between two hosts of namespaces or, where none can be made, over loopback."""

from __future__ import annotations

from harpctl.command_line import command, json_option
from harpctl.console import ERR, Console, print_json
from harplab.bench.options import DEFAULT_SIZES, LATENCY_SIZES, LocalPlace, SideOptions
from harplab.bench.report import Output, make_document, print_measured
from harplab.perf.job import Mode, PerfJob
from harplab.perf.measure import measure_sides
from harplab.perf.sizes import parse_sizes

TIME_S = 0.5  # per size
JOBS = (
    ("Half round trip", Mode.PINGPONG, LATENCY_SIZES),
    ("Stream", Mode.STREAM, DEFAULT_SIZES),
)


@command()
@json_option
def demo(*, as_json: bool) -> None:
    """Send checked messages of all sizes between two hosts made of network namespaces.

    Without root, or without the tools that make namespaces, between two processes over loopback.
    """
    sides = SideOptions().perf_sides()
    documents = []
    with LocalPlace().open() as (hosts, place, notes):
        for title, mode, sizes in JOBS:
            ERR.print(f"{title}, every byte checked:")
            job = PerfJob(mode=mode.value, sizes_bytes=parse_sizes(sizes), time_s=TIME_S)
            measured = measure_sides(hosts, sides, job, 1, lambda _text: None)
            documents.append(make_document(place, job, 1, sides, measured))
            if not as_json:
                print_measured(Console(), place, job, 1, measured, notes)
            Output().require_right(sum(row.wrong or 0 for row in measured.rows[0]), "messages")
    if as_json:
        print_json(documents)
