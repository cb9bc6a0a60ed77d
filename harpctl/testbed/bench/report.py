# SPDX-License-Identifier: Apache-2.0
"""The report of counted runs: the table with its notes, and the JSON."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence

import msgspec

from harpctl.console import Console
from harpctl.testbed.bench.cores import CoreFigures
from harpctl.testbed.bench.measure import Measured, Side, setting_text
from harpctl.testbed.bench.perf import Mode, PerfJob
from harpctl.testbed.bench.table import print_rows, single_table, versus_table
from harpctl.units import short_size

LOST = "lost: of the packets that the network was given in both directions, those it dropped, handshakes too"


def document(
    place: str,
    job: PerfJob,
    runs: int,
    sides: Sequence[Side],
    measured: Measured,
    cores: CoreFigures | None = None,
) -> bytes:
    """Write the whole measurement as JSON: what was run, where, and every row."""
    content = {
        "place": place,
        "machine": {"kernel": os.uname().release, "arch": os.uname().machine, "cpus": os.cpu_count()},
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "job": {name: value for name, value in dataclasses.asdict(job).items() if name != "sizes_bytes"},
        "runs": runs,
        "core_latency": cores,
        "sides": [
            {
                "name": side.name,
                "plugin": str(side.program.plugin),
                "env": dict(side.program.env),
                "rows": [
                    {**dataclasses.asdict(row), "latency_us": row.latency_us, "setting": setting}
                    for row, setting in zip(rows, settings, strict=True)
                ],
            }
            for side, rows, settings in zip(sides, measured.rows, measured.settings, strict=True)
        ],
        "ratios": [dataclasses.asdict(ratio) for ratio in measured.ratios],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def notes_of(place: str, job: PerfJob, runs: int, measured: Measured) -> list[str]:
    """Return the notes below the table: what was run and how."""
    checked = "every byte checked" if job.check else "data not checked"
    by_time = job.mode == Mode.PINGPONG.value
    waited = " (sends waited for)" if job.wait_sent else ""
    lines = [
        place,
        f"{job.mode}{waited}, {job.connections} connection(s), {job.inflight} in flight, {checked}",
        f"median of {runs} run(s)"
        + ("" if by_time else "; cpu is machine time with softirq, without start-up"),
    ]
    if any(row.lost_share is not None for rows in measured.rows for row in rows):
        lines.append(LOST)
    if len(measured.names) == 2:
        less = "less" if by_time else "more"
        lines.append(
            f"ratio = {measured.names[0]} / {measured.names[1]}; {less} is better for {measured.names[0]}"
        )
    for name, rows, settings in zip(measured.names, measured.rows, measured.settings, strict=True):
        chosen = [
            f"{short_size(row.bytes)}: {setting_text(setting)}"
            for row, setting in zip(rows, settings, strict=True)
            if setting
        ]
        if chosen:
            lines.append(f"{name} best with {'; '.join(chosen)} (default elsewhere)")
    return lines


def print_measured(
    console: Console, place: str, job: PerfJob, runs: int, measured: Measured, notes: Sequence[str]
) -> None:
    """Print the table of one side or two, and the notes."""
    if len(measured.names) == 2:
        pairs = list(zip(*measured.rows, strict=True))
        lines = versus_table(job.mode, (measured.names[0], measured.names[1]), pairs, measured.ratios)
    else:
        lines = single_table(job.mode, measured.rows[0])
    print_rows(console, lines, [*notes_of(place, job, runs, measured), *notes])
