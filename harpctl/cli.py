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
from importlib.util import find_spec
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters

from harpctl.build_info import build_version
from harpctl.errors import ExitCode, HarpError
from harpctl.failures import DEBUG, open_streams, reports_errors, take_signals
from harpctl.fleet import over_hosts
from harpctl.option_types import AsJson

COMPLETION = "_HARPCTL_COMPLETE"  # the variable by which shells ask for words, and packages for the scripts

# The commands of each panel of the help, in its order, and the modules that hold them.
COMMANDS: dict[str, dict[str, str]] = {
    "Prepare a host": {
        "facts": "harpctl.facts.command",
        "setup": "harpctl.setup.command",
        "confirm": "harpctl.network.command",
        "edit": "harpctl.edit",
        "rollback": "harpctl.change.command",
    },
    "Test and measure": {
        "validate": "harpctl.doctor.command",
        "doctor": "harpctl.doctor.command",
        "topo": "harpctl.doctor.command",
        "preflight": "harpctl.preflight.command",
        "report": "harpctl.bundle.command",
        "demo": "harplab.bench.demo",
        "bench": "harplab.bench.command",
        "lab": "harplab.lab.command",
    },
    "Inspect jobs": {
        "top": "harpctl.stats.top",
        "stats": "harpctl.stats.command",
        "trace": "harpctl.trace.command",
        "export": "harpctl.stats.export",
        "dissector": "harpctl.dissector.command",
    },
    "The plugin": {
        "install": "harpctl.plugin.command",
        "enable": "harpctl.plugin.command",
        "disable": "harpctl.plugin.command",
        "status": "harpctl.plugin.command",
        "node": "harpctl.node.command",
        "cdi": "harpctl.node.command",
    },
    "Internal": {
        "boot": "harpctl.boot",
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
LAB = "harplab"  # the Python package that measures and tries things out, which a host need not have
NO_LAB = "`harpctl {}` needs the lab: install harp-lab (deb, rpm) or harpctl_lab (wheel), or use a checkout."
ANY_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}
# What has commands of its own, and its help, which a command of that name itself has.
GROUPS = {
    "bench": "",
    "lab": "Hosts made of network namespaces, for measurements and tests.",
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


def load(name: str) -> dict[str, Callable[..., None]]:
    """Import the commands of a name by the words after it: of a group several; "" is the name alone."""
    (module,) = [names[name] for names in COMMANDS.values() if name in names]
    imported = importlib.import_module(module)
    if name in GROUPS:
        commands: dict[str, Callable[..., None]] = imported.COMMANDS
        return commands
    command: Callable[..., None] = getattr(imported, name)
    return {"": over_hosts(command) if name in ON_HOSTS else command}


def of_lab(name: str) -> bool:
    """Return whether a command or group is one of the lab's."""
    return any(names.get(name, "").startswith(f"{LAB}.") for names in COMMANDS.values())


def _refusal(name: str) -> Callable[..., None]:
    """Return what stands for a command of the lab on a host without it."""

    def refuse(*, as_json: AsJson = False) -> None:
        del as_json
        raise HarpError(NO_LAB.format(name), exit_code=ExitCode.MISSING)

    return refuse


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
            if only not in {None, name}:
                continue
            if of_lab(name) and find_spec(LAB) is None:
                add = app.command(
                    name, help=NO_LAB.format(name), rich_help_panel=panel, context_settings=ANY_WORDS
                )
                add(reports_errors(_refusal(name)))
                continue
            commands = load(name)
            if name not in GROUPS:
                app.command(name, rich_help_panel=panel)(reports_errors(commands[""]))
                continue
            about = GROUPS[name] or commands[""].__doc__
            group = typer.Typer(no_args_is_help="" not in commands, add_completion=False, help=about)
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
    names = {name for names in COMMANDS.values() for name in names}
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    make_app(word if word in names and COMPLETION not in os.environ else None)()
