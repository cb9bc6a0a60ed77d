# SPDX-License-Identifier: Apache-2.0
"""The command line: options common to all commands, and errors turned into one readable line.

A command's own module holds what it does; this file only names the commands, in the order of their use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters

from harpctl.boot import boot
from harpctl.build_info import build_version
from harpctl.bundle.command import report
from harpctl.change.command import rollback
from harpctl.dissector.command import dissector
from harpctl.doctor.command import doctor, topo, validate
from harpctl.facts.command import facts
from harpctl.failures import DEBUG, open_streams, reports_errors, take_signals
from harpctl.fleet import over_hosts
from harpctl.network.command import confirm
from harpctl.node.command import cdi, node
from harpctl.plugin.command import disable, enable, install, status
from harpctl.preflight.command import preflight
from harpctl.setup.command import setup
from harpctl.stats.command import stats
from harpctl.stats.export import export
from harpctl.stats.top import top
from harpctl.testbed.bench.command import bench
from harpctl.testbed.bench.demo import demo
from harpctl.testbed.lab.command import LAB_COMMANDS
from harpctl.trace.command import trace

COMPLETION = "_HARPCTL_COMPLETE"  # the variable by which shells ask for words, and packages for the scripts

app = typer.Typer(
    name="harpctl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Prepare a host": (over_hosts(facts), over_hosts(setup), confirm, over_hosts(rollback)),
    "Test and measure": (
        over_hosts(validate),
        over_hosts(doctor),
        over_hosts(topo),
        preflight,
        report,
        demo,
        bench,
    ),
    "Inspect jobs": (over_hosts(top), over_hosts(stats), trace, export, dissector),
    "The plugin": (install, enable, disable, status, node, cdi),
    "Inside": (boot,),
}
GROUPS = {
    "lab": ("Test and measure", "Network namespaces that stand for hosts, to try things in.", LAB_COMMANDS)
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harpctl {build_version()}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Set up, measure and maintain HARP, a user-space transport for NCCL."""
    del version
    DEBUG.set(debug)


for _panel, _commands in COMMANDS.items():
    for _command in _commands:
        app.command(_command.__name__, rich_help_panel=_panel)(reports_errors(_command))

for _name, (_panel, _help, _named) in GROUPS.items():
    _group = typer.Typer(no_args_is_help=True, add_completion=False, help=_help)
    for _word, _command in _named.items():
        _group.command(_word)(reports_errors(_command))
    app.add_typer(_group, name=_name, rich_help_panel=_panel)


def main() -> None:
    """Run the program; the console script's entry."""
    open_streams()
    take_signals()
    if COMPLETION in os.environ:
        get_completion_inspect_parameters()  # makes the shells known to typer
    app()
