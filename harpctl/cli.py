# SPDX-License-Identifier: Apache-2.0
"""The command line: options common to all commands, and errors turned into one readable line.

A command's own module holds what it does; this file only names the commands, in the order of their use, and
imports those that are requested.
"""

from __future__ import annotations

import functools
import importlib

import click

from harpctl.build_info import build_version
from harpctl.command_line import Command, Group, flag, json_option
from harpctl.failures import DEBUG, open_streams, take_signals
from harpctl.fleet import over_hosts
from harpctl.lab import LAB, NO_LAB, is_there, no_lab

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
        "dissector": "harplab.dissector.command",
    },
    "The plugin": {
        "install": "harpctl.plugin.command",
        "enable": "harpctl.plugin.command",
        "disable": "harpctl.plugin.command",
        "status": "harpctl.plugin.command",
        "node": "harpctl.node.command",
        "cdi": "harpctl.node.command",
    },
    "Internal": {"boot": "harpctl.boot"},
}
# Those that also run on other hosts.
ON_HOSTS = {"facts", "setup", "rollback", "validate", "doctor", "topo", "top", "stats"}
ANY_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}


class Program(Group):
    """harpctl itself: imports those commands that are requested, since importing all takes a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands and groups."""
        del ctx
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        return load_command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all commands under their headings."""
        del ctx
        for heading, names in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, load_command(name).get_short_help_str()) for name in names])


@functools.cache
def load_command(name: str) -> click.Command:
    """Import the command or group of a name; without the lab, what stands for one of its."""
    (module,) = [names[name] for names in COMMANDS.values() if name in names]
    if of_lab(name) and not is_there():
        return _without_lab(name)
    found: click.Command = getattr(importlib.import_module(module), name)
    return over_hosts(found) if name in ON_HOSTS else found


def of_lab(name: str) -> bool:
    """Return whether a command or group is one of the lab's."""
    return any(names.get(name, "").startswith(f"{LAB}.") for names in COMMANDS.values())


def _without_lab(name: str) -> click.Command:
    """Return what stands for a command of the lab on a host without it."""

    @json_option
    def refuse(*, as_json: bool) -> None:
        del as_json
        raise no_lab(name)

    return click.command(name, Command, help=NO_LAB.format(name), context_settings=ANY_WORDS)(refuse)


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"harpctl {build_version()}")
        ctx.exit()


@click.group("harpctl", cls=Program, context_settings={"help_option_names": ["--help", "-h"]})
@flag("--version", is_eager=True, expose_value=False, callback=_print_version, help="Print the version.")
@flag("--debug", help="Show the traceback of an error.")
def app(*, debug: bool) -> None:
    """Set up, measure and maintain HARP, a user-space transport for NCCL and RCCL."""
    DEBUG.set(debug)


def main() -> None:
    """Run the program; the console script's entry."""
    open_streams()
    take_signals()
    app(complete_var=COMPLETION)
