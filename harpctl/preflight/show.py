# SPDX-License-Identifier: Apache-2.0
"""Shows a preflight: hosts, what is wrong with them, rates, the comparison, the verdict."""

from __future__ import annotations

import statistics

from rich.text import Text

from harpctl.console import OUT, make_table, print_table
from harpctl.preflight.model import Problem, Report
from harpctl.units import short_size

NAMED_MAX = 4  # hosts of a note that are named one by one


def show_report(report: Report, other: str) -> None:
    """Print a report for a person."""
    failed = {host for one in report.problems if one.level == "fail" for host in one.hosts}
    named = dict.fromkeys([*report.hosts, *(host for one in report.problems for host in one.hosts)])
    table = make_table("host", "result", "HARP", "build", "ENIs", "out Gbit/s", "in Gbit/s")
    for host in named:
        state = report.hosts.get(host)
        result = Text("failed", style="red") if host in failed else Text("ok", style="green")
        words = (
            ["", "", ""] if state is None else [state.version, state.build, ",".join(e.name for e in state.enis)]
        )
        table.add_row(
            host, result, *words, _median_rate(report, host, "source"), _median_rate(report, host, "target")
        )
    print_table(table)
    for one in report.problems:
        style = "bold red" if one.level == "fail" else "yellow"
        OUT.print(f"{one.level:<4}  {_hosts_text(one)}: {one.check}: {one.cause}", style=style, markup=False)
        for repair in one.repair:
            OUT.print(f"        {repair}", markup=False)
    if report.compared:
        OUT.print(f"{' and '.join(report.pair)}, Gbit/s, HARP against {other}:", markup=False)
        table = make_table("size", "HARP", "other", "ratio", right=True)
        for row in report.compared:
            scatter = f"{row.ratio:.2f} ({row.least:.2f}-{row.greatest:.2f})"
            table.add_row(short_size(row.bytes), f"{row.harp_gbps:.3g}", f"{row.other_gbps:.3g}", scatter)
        print_table(table)
    OUT.print(report.verdict.text, style="green" if report.ok else "bold red", markup=False)


def _median_rate(report: Report, host: str, end: str) -> str:
    """Return the median of a host's rates with the others, all its ENIs together."""
    sums: dict[str, float] = {}
    other = "target" if end == "source" else "source"
    for rate in report.rates:
        if getattr(rate, end) == host:
            sums[getattr(rate, other)] = sums.get(getattr(rate, other), 0.0) + rate.gbps
    return f"{statistics.median(sums.values()):.3g}" if sums else ""


def _hosts_text(problem: Problem) -> str:
    hosts = problem.hosts
    return ", ".join(hosts) if len(hosts) <= NAMED_MAX else f"{len(hosts)} hosts ({hosts[0]}, ...)"
