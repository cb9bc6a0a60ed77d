# SPDX-License-Identifier: Apache-2.0
"""The command line: options common to all commands, and errors turned into one readable line.

A command's own module holds what it does; this file only names the commands, in the order of their use, and
imports those that are requested.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters

from harpctl.build_info import build_version
from harpctl.failures import DEBUG, open_streams, reports_errors, take_signals
from harpctl.fleet import over_hosts

COMPLETION = "_HARPCTL_COMPLETE"  # the variable by which shells ask for words, and packages for the scripts

# The commands of each panel of the help, in its order, and the modules that hold them.
COMMANDS: dict[str, dict[str, str]] = {
    "Prepare a host": {
        "facts": "facts.command",
        "setup": "setup.command",
        "confirm": "network.command",
        "edit": "edit",
        "rollback": "change.command",
    },
    "Test and measure": {
        "validate": "doctor.command",
        "doctor": "doctor.command",
        "topo": "doctor.command",
        "preflight": "preflight.command",
        "report": "bundle.command",
        "demo": "testbed.bench.demo",
    },
    "Inspect jobs": {
        "top": "stats.top",
        "stats": "stats.command",
        "trace": "trace.command",
        "export": "stats.export",
        "dissector": "dissector.command",
    },
    "The plugin": {
        "install": "plugin.command",
        "enable": "plugin.command",
        "disable": "plugin.command",
        "status": "plugin.command",
        "node": "node.command",
        "cdi": "node.command",
    },
    "Internal": {
        "boot": "boot",
    },
}
# Those that also run on other hosts.
ON_HOSTS = {
    "facts",
    "setup",
    "rollback",
    "validate",
    "doctor",
    "topo",
    "top",
    "stats",
}
# What has commands of its own. The command "" is the group itself, with its help.
GROUPS = {
    "bench": ("Test and measure", "", "testbed.bench.command"),
    "lab": (
        "Test and measure",
        "Hosts made of network namespaces, for measurements and tests.",
        "testbed.lab.command",
    ),
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harpctl {build_version()}")
        raise typer.Exit


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


def load(name: str) -> Callable[..., None]:
    """Import a command."""
    (module,) = [names[name] for names in COMMANDS.values() if name in names]
    command: Callable[..., None] = getattr(importlib.import_module(f"harpctl.{module}"), name)
    return over_hosts(command) if name in ON_HOSTS else command


def load_group(name: str) -> dict[str, Callable[..., None]]:
    """Import the commands of a group."""
    commands: dict[str, Callable[..., None]] = importlib.import_module(f"harpctl.{GROUPS[name][2]}").COMMANDS
    return commands


def make_app(only: str | None = None) -> typer.Typer:
    """Return the program; with `only` one command or group of it, since importing all takes a second."""
    app = typer.Typer(
        name="harpctl",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for panel, names in COMMANDS.items():
        for name in names:
            if only in {None, name}:
                app.command(name, rich_help_panel=panel)(reports_errors(load(name)))
    for name, (panel, about, _module) in GROUPS.items():
        if only not in {None, name}:
            continue
        commands = load_group(name)
        group = typer.Typer(no_args_is_help="" not in commands, add_completion=False, help=about or None)
        for word, command in commands.items():
            add = group.command(word) if word else group.callback(invoke_without_command=True)
            add(reports_errors(command))
        app.add_typer(group, name=name, rich_help_panel=panel)
    return app


def main() -> None:
    """Run the program; the console script's entry."""
    open_streams()
    take_signals()
    if COMPLETION in os.environ:
        get_completion_inspect_parameters()  # makes the shells known to typer
    names = {*GROUPS, *(name for names in COMMANDS.values() for name in names)}
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    make_app(word if word in names and COMPLETION not in os.environ else None)()
