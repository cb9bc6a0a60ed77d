# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab simulate`: collectives on clusters of any size in virtual time, by HARP and by TCP."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harpctl.build_info import built_file
from harpctl.command_line import FILE, argument, command, json_option, option
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harplab.bench.options import PLOT
from harplab.bench.report import Output, made_here, show_progress
from harplab.bench.table import print_rows
from harplab.plotting import require_plot
from harplab.simulate.report import lines_of, markdown, plot, rows_of
from harplab.simulate.run import HARP, PROGRAM, TCP, planned, simulate_all

COLLECTIVES = ("ring", "tree", "alltoall", "incast")
OWN = ("collective", "hosts", "transport")


def _parse_words(text: str, known: tuple[str, ...], what: str) -> list[str]:
    words = text.split(",")
    wrong = [word for word in words if word not in known]
    if wrong:
        raise HarpError(f"{wrong[0]!r} is no {what}.", f"There are {', '.join(known)}.", ExitCode.USAGE)
    return list(dict.fromkeys(words))


def _parse_hosts(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and 2 <= int(word) <= 1024 for word in words):
        raise HarpError(f"{text!r} are no numbers of hosts.", "From 2 to 1024, as 16,64,256.", ExitCode.USAGE)
    return list(dict.fromkeys(map(int, words)))


def _parse_settings(words: tuple[str, ...]) -> list[str]:
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals:
            raise HarpError(f"{word!r} is no KEY=VALUE.", "As interfaces=4.", ExitCode.USAGE)
        if key in OWN:
            option_name = "--transport" if key == "transport" else f"--{key}"
            raise HarpError(f"{key} is an option here.", f"{option_name} VALUE,...", ExitCode.USAGE)
    return list(words)


@command("simulate")
@argument(
    "settings",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    help=f"Of all clusters, as interfaces=4; {PROGRAM} --help lists the keys.",
)
@option("--collective", "collectives", default=",".join(COLLECTIVES), help="Which, with commas between.")
@option("--hosts", default="16,64,256", help="Sizes of clusters, with commas between.")
@option("--transport", "transports", default=f"{HARP},{TCP}", help=f"{HARP}, {TCP} or both.")
@option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default=False,
    help="Runs at a time. Default: one for each core.",
)
@option("--markdown", "markdown_file", type=FILE, default=None, help="Write the table to FILE.")
@option("--plot", "plot_file", **{**PLOT, "default": None})
@json_option
def lab_simulate(
    settings: tuple[str, ...],
    *,
    collectives: str,
    hosts: str,
    transports: str,
    jobs: int,
    markdown_file: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Simulate collectives on clusters: HARP's own protocol code, and a model of TCP beside, in virtual time.

    Hosts hang on leaf and spine switches with finite queues. Times are of one operation; the ideal knows the
    rate of a host's interfaces and the way between hosts alone. Needs no root, no network and no GPU.
    """
    clusters, notes = planned(
        _parse_words(collectives, COLLECTIVES, "collective"),
        _parse_hosts(hosts),
        _parse_words(transports, (HARP, TCP), "transport"),
        _parse_settings(settings),
    )
    if plot_file:
        require_plot(plot_file)
    if not clusters:
        raise HarpError("Nothing is left to simulate.", " ".join(notes), ExitCode.USAGE)
    program = built_file(PROGRAM, "harplab")
    with show_progress(Console(stderr=True), len(clusters)) as step:
        results = simulate_all(program, clusters, jobs, step)
    rows = rows_of(results)
    if as_json:
        print_json({**made_here("simulated"), "settings": settings, "notes": notes, "runs": results})
    else:
        print_rows(Console(), lines_of(rows), [*notes, "lost, Jain: of HARP, of TCP."])
    if markdown_file:
        markdown_file.write_text(markdown(rows), encoding="utf-8")
    if plot_file:
        plot(plot_file, " ".join(settings) or "defaults", rows)
    late = [one for one in results if not one.is_finished]
    if late:
        first = late[0]
        what = f"{first.collective} of {first.hosts} hosts by {first.transport}"
        Output(None, as_json).fail(HarpError(f"{what} did not finish.", "limit_s=60 gives it longer."))
