# SPDX-License-Identifier: Apache-2.0
"""The report of runs of real NCCL: nccl-tests' table with columns for each side, notes, and the JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from harplab.bench.cores import CoreFigures
from harplab.bench.nccl_measure import NcclJob, NcclMeasured, NcclPlace, NcclRow, NcclSide
from harplab.bench.report import best_notes, made_here
from harplab.bench.table import count_text, figure_text, percent_text


def _row_cells(row: NcclRow) -> list[str]:
    return [
        figure_text(row.time_us),
        f"{figure_text(row.time_min_us)}-{figure_text(row.time_max_us)}",
        figure_text(row.algbw_gbps),
        figure_text(row.busbw_gbps),
        count_text(row.wrong),
    ]


def nccl_table(measured: NcclMeasured) -> list[list[str]]:
    """Lay out the table: a line of heads, a line of units, a line per size."""
    heads, units = ["size", "count", "type", "redop"], ["(B)", "(elements)", "", ""]
    for name in measured.names:
        heads += [f"{name} time", "min-max", "algbw", "busbw", "#wrong"]
        units += ["(us)", "(us)", "(Gbit/s)", "(Gbit/s)", ""]
    if measured.ratios:
        heads += ["ratio", "min-max"]
        units += ["of medians", "of pairs"]
    lines = [heads, units]
    for number, rows in enumerate(zip(*measured.rows, strict=True)):
        first = rows[0]
        line = [str(first.bytes), str(first.count), first.type, first.redop]
        for row in rows:
            line += _row_cells(row)
        if measured.ratios:
            ratio = measured.ratios[number]
            line += [f"{ratio.of_medians:.2f}", f"{ratio.least:.2f}-{ratio.greatest:.2f}"]
        lines.append(line)
    return lines


def geometric_mean(measured: NcclMeasured) -> float:
    """Return the geometric mean of the ratios of all sizes."""
    return math.exp(sum(math.log(ratio.of_medians) for ratio in measured.ratios) / len(measured.ratios))


def nccl_notes(where: str, version: str, job: NcclJob, runs: int, measured: NcclMeasured) -> list[str]:
    """Return the notes below the table: what was run and how."""
    checked = "every element checked" if job.check else "data not checked"
    lines = [
        where,
        f"NCCL {version}, {job.op}, {job.ranks} ranks, GPUs emulated by threads, {checked}",
        f"median of {runs} run(s)",
    ]
    if measured.ratios:
        ours, theirs = measured.names
        lines.append(
            f"ratio = time of {ours} / {theirs}; less is better for {ours}; "
            f"geometric mean {geometric_mean(measured):.2f}"
        )
    for name, lost in zip(measured.names, measured.lost_shares, strict=True):
        if lost is not None:
            lines.append(f"{name}: the network dropped {percent_text(lost)} % of all packets")
    for name, rows in zip(measured.names, measured.rows, strict=True):
        lines += best_notes(name, {row.bytes: row.setting for row in rows if row.setting})
    return lines


def nccl_document(
    where: str,
    version: str,
    place: NcclPlace,
    job: NcclJob,
    runs: int,
    sides: Sequence[NcclSide],
    measured: NcclMeasured,
    cores: CoreFigures | None,
) -> dict[str, object]:
    """Return the whole measurement: what was run, where, and every row."""
    return {
        **made_here(where),
        "nccl": version,
        "cores": place.cores,
        "core_latency": cores,
        "job": {name: value for name, value in dataclasses.asdict(job).items() if name != "sizes_bytes"},
        "runs": runs,
        "sides": [
            {
                "name": name,
                "settings": [dict(side.env) for side in sides if side.name == name],
                "lost_share": lost,
                "rows": [dataclasses.asdict(row) for row in rows],
            }
            for name, lost, rows in zip(measured.names, measured.lost_shares, measured.rows, strict=True)
        ],
        "ratios": [dataclasses.asdict(ratio) for ratio in measured.ratios],
    }
