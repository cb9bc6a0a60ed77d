# SPDX-License-Identifier: Apache-2.0
"""Content of the tables, plain and on a terminal."""

from __future__ import annotations

import io

from harpctl.console import Console
from harplab.bench.table import plain_text, print_rows, single_table, versus_table
from harplab.perf.compare import compare_results, summarize_results
from harplab.perf.job import Latency, PerfResult


def make_result(gbps: float, wrong: int = 0) -> PerfResult:
    return PerfResult(1048576, 1234, 1.0, gbps, gbps, wrong)


def half_trip(p50: float) -> PerfResult:
    return PerfResult(8, 5000, 1.0, 0.1, 0.1, 0, Latency(1.0, p50, 9.5, 12.25, 99.0, 1500.0, 8.0))


def test_rates_in_nccl_tests_manner() -> None:
    text = plain_text(single_table("stream", [summarize_results([make_result(60.125, wrong=2)], [0.25])]))
    head, units, row = text.splitlines()
    assert head.split() == ["#", "size", "count", "time", "algbw", "busbw", "#wrong", "cpu"]
    assert units.split() == ["#", "(B)", "(msgs)", "(us)", "(Gbit/s)", "(Gbit/s)", "(s/GB)"]
    assert row.split() == ["1048576", "1234", "139.5", "60.12", "60.12", "2", "0.25"]
    assert len({len(line) for line in text.splitlines()}) == 1


def test_latency_shows_percentiles() -> None:
    row = plain_text(single_table("pingpong", [summarize_results([half_trip(7.8)], [None])])).splitlines()[2]
    assert row.split() == ["8", "5000", "7.80", "9.50", "12.25", "99.00", "1500", "0"]


def test_unchecked_data_is_not_called_right() -> None:
    row = plain_text(
        single_table("stream", [summarize_results([make_result(1)], [None], checked=False)])
    ).splitlines()[2]
    assert row.split()[-2:] == ["N/A", "-"]


def table_against(mode: str, ours: PerfResult, theirs: PerfResult) -> str:
    a, b = summarize_results([ours], [0.1]), summarize_results([theirs], [0.4])
    ratio = compare_results([ours], [theirs], a, b, by_time=mode == "pingpong")
    return plain_text(versus_table(mode, ("HARP", "NCCL Socket"), [(a, b)], [ratio]))


def test_what_the_network_dropped_is_shown_where_it_was_counted() -> None:
    a = summarize_results([make_result(60)], [0.1], lost_share=0.0149)
    heads, units, row = single_table("stream", [a])
    assert (heads[-1], units[-1], row[-1]) == ("lost", "(%)", "1.49")
    b = summarize_results([make_result(40)], [0.4])
    ratio = compare_results([make_result(60)], [make_result(40)], a, b, by_time=False)
    heads, units, row = versus_table("stream", ("HARP", "Socket"), [(a, b)], [ratio])
    assert heads[-2:] == ["lost", "lost"]
    assert units[-2:] == ["HARP (%)", "Socket (%)"]
    assert row[-2:] == ["1.49", "-"]


def test_versus_rates() -> None:
    row = table_against("stream", make_result(60), make_result(40)).splitlines()[2]
    assert row.split() == ["1M", "60.00", "40.00", "1.50", "1.50-1.50", "0", "0.10", "0.40", "0.25"]


def test_versus_times_has_no_machine_time() -> None:
    head, units, row = table_against("pingpong", half_trip(4.0), half_trip(8.0)).splitlines()
    assert "cpu" not in head
    assert "(us)" in units
    assert row.split() == ["8", "4.00", "8.00", "0.50", "0.50-0.50", "0"]


def test_a_terminal_gets_the_same_cells() -> None:
    lines = single_table("stream", [summarize_results([make_result(60)], [0.25])])
    out = io.StringIO()
    print_rows(Console(file=out, force_terminal=True, width=120, no_color=True), lines, ["[note] kept as it is"])
    shown = out.getvalue()
    assert all(cell in shown for cell in lines[2])
    assert "# [note] kept as it is" in shown
    assert "\x1b[" in shown


def test_a_file_gets_no_escape() -> None:
    out = io.StringIO()
    print_rows(
        Console(file=out),
        single_table("stream", [summarize_results([make_result(60)], [0.25])]),
        ["note " * 40],
    )
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().splitlines()[-1] == "# " + "note " * 39 + "note "
