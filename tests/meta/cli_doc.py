# SPDX-License-Identifier: Apache-2.0
"""docs/reference/cli.md, made from the commands themselves: `python -m tests.meta.cli_doc` writes it anew."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from harpctl.cli import COMMANDS, app, load_command
from harpctl.errors import ExitCode

FILE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

Made from the commands' help by `python -m tests.meta.cli_doc`.
[operations.md](../how-to/operations.md) explains when to use which; `--help` of a command says
more, and alone has what is below `bench` and `lab` ([lab.md](../how-to/lab.md)).

Results go to standard output, progress and errors to standard error. With `--json` standard output
is one JSON document, after a failure
`{"ok": false, "error": "...", "hint": "...", "exit_code": N}`. `harpctl --debug COMMAND` shows the
traceback of an error, `harpctl --version` the version.

Exit codes:

- 0: done, or right
"""

CODES = {
    ExitCode.FAILED: "failed, or a check failed; what was begun is undone",
    ExitCode.USAGE: "wrong usage; also `setup --dry-run --exit-code` with something to do",
    ExitCode.WRONG_DATA: "wrong data in a file or a message",
    ExitCode.MISSING: "something that is needed is not there",
    ExitCode.REFUSED: "refused: it would do harm, or needs root",
    ExitCode.INTERRUPTED: "interrupted by ctrl-C, SIGTERM or a hang-up; what was begun is undone",
}
COMMON = """
## Options that many commands have

`--help` says which a command has.

"""
COMMON_FROM = 5  # commands that have the same option
HELP_ALONE = {"lab", "bench"}  # commands of developers, whose options and commands only --help lists
INTERNAL = "Internal"  # the panel of what no operator runs
CONTEXT = click.Context(app)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _summary_of(text: str) -> str:
    """Return the first paragraph of a command's help."""
    return _one_line(re.split(r"\n\s*\n", text.strip())[0])


def _names_of(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return f"`{param.human_readable_name}`"
    names = ["/".join([*param.opts, *param.secondary_opts])] if param.secondary_opts else param.opts
    shown = ", ".join(f"`{name}`" for name in names)
    return shown if getattr(param, "is_flag", False) else f"{shown} {_one_line(param.make_metavar(CONTEXT))}"


def _meaning_of(param: click.Parameter) -> str:
    shown = getattr(param, "show_default", False) and not isinstance(param.default, bool)
    return _one_line(param.help or "") + (f" Default: {param.default}." if shown else "")


def shown_parameters(command: click.Command) -> list[click.Parameter]:
    """Return what a command takes and its help shows."""
    return [param for param in command.params if not getattr(param, "hidden", False)]


def _row_of(param: click.Parameter) -> str:
    return f"- {_names_of(param)}: {_meaning_of(param)}"


def _load_commands(names: Iterable[str]) -> Iterator[tuple[str, click.Command]]:
    """Load the commands of these names, with those of groups."""
    for name in names:
        command = load_command(name)
        if command.callback or _has_help_alone(name):
            yield name, command
        if not _has_help_alone(name):
            yield from ((f"{name} {word}", below) for word, below in getattr(command, "commands", {}).items())


@functools.cache
def _common_rows() -> tuple[str, ...]:
    """Return the rows that many commands share, the most frequent first."""
    every = [item for names in COMMANDS.values() for item in _load_commands(names)]
    shown = [command for name, command in every if not _has_help_alone(name)]
    rows = Counter(_row_of(param) for command in shown for param in shown_parameters(command))
    return tuple(row for row, count in rows.most_common() if count >= COMMON_FROM)


def _first_name(param: click.Parameter) -> str:
    return re.split(r",? ", _names_of(param))[0]


def _has_help_alone(name: str) -> bool:
    return name.partition(" ")[0] in HELP_ALONE


def _describe_command(name: str, command: click.Command, seen: dict[str, str]) -> str:
    """Describe a command. A row that is among those of an earlier one, in `seen`, is only named."""
    shown = (
        [] if _has_help_alone(name) else [p for p in shown_parameters(command) if _row_of(p) not in _common_rows()]
    )
    own = [_row_of(p) for p in shown if _row_of(p) not in seen]
    elsewhere: dict[str, list[str]] = {}
    for p in (p for p in shown if _row_of(p) in seen):
        elsewhere.setdefault(seen[_row_of(p)], []).append(_first_name(p))
    seen |= dict.fromkeys(own, name)
    also = "; ".join(f"as of {where}, {', '.join(names)}" for where, names in elsewhere.items())
    arguments = [p.human_readable_name for p in command.params if isinstance(p, click.Argument)]
    usage = " ".join(["harpctl", name, *arguments])
    lines = [f"### {usage}\n", _summary_of(command.help or "") + "\n", *own]
    lines += [f"{chr(10) if own else ''}Also {also}."] if also else []
    return "\n".join(lines).rstrip("\n") + "\n"


def generate_document() -> str:
    """Return the text of docs/reference/cli.md."""
    parts = [HEAD]
    parts += [f"- {int(code)}: {text}\n" for code, text in sorted(CODES.items())]
    parts += [COMMON, *(f"{row}\n" for row in _common_rows())]
    seen: dict[str, str] = {}
    for panel, names in COMMANDS.items():
        if panel == INTERNAL:
            continue
        parts.append(f"\n## {panel}\n")
        parts += ["\n" + _describe_command(name, command, seen) for name, command in _load_commands(names)]
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(generate_document(), encoding="utf-8")
