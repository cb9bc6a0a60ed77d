# SPDX-License-Identifier: Apache-2.0
"""docs/reference/cli.md, made from the commands themselves: `python -m tests.meta.cli_doc` writes it anew."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from harpctl.cli import COMMANDS, app, load
from harpctl.errors import ExitCode

FILE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

Made from the commands by `python -m tests.meta.cli_doc`; a test compares.
[operations.md](../how-to/operations.md) explains when to use which.

Results go to standard output, progress and errors to standard error. No command reads standard input. With
`--json` standard output holds one JSON document and nothing else; where the command could not do its work,
that is `{"ok": false, "error": "...", "hint": "...", "exit_code": N}`, and wrong usage alone prints nothing
there. Every command takes `--help`; `harpctl --debug COMMAND` shows the traceback of an error,
`harpctl --version` the version.

| exit code | meaning |
|---|---|
| 0 | done, or right |
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

"""
COMMON_FROM = 5  # commands that have the same option
MISSING_MAX = 4  # of the options of another command, to be named as those that a command lacks
CONTEXT = click.Context(app)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _paragraphs(text: str) -> str:
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(re.sub(r"\s*\n\s*", " ", block) for block in blocks)


def _names(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return f"`{param.human_readable_name}`"
    names = ["/".join([*param.opts, *param.secondary_opts])] if param.secondary_opts else param.opts
    shown = ", ".join(f"`{name}`" for name in names)
    return shown if getattr(param, "is_flag", False) else f"{shown} {_one_line(param.make_metavar(CONTEXT))}"


def _meaning(param: click.Parameter) -> str:
    shown = getattr(param, "show_default", False) and not isinstance(param.default, bool)
    return _one_line(param.help or "") + (f" Default: {param.default}." if shown else "")


def _parameters(command: click.Command) -> list[click.Parameter]:
    return [param for param in command.params if not getattr(param, "hidden", False)]


def _row(param: click.Parameter) -> str:
    return f"- {_names(param)}: {_meaning(param)}"


def _commands(names: Iterable[str]) -> Iterator[tuple[str, click.Command]]:
    """Load the commands of these names, with those of groups."""
    for name in names:
        command = load(name)
        if command.callback:
            yield name, command
        yield from ((f"{name} {word}", below) for word, below in getattr(command, "commands", {}).items())


@functools.cache
def _common() -> tuple[str, ...]:
    """Return the rows that many commands share, the most frequent first."""
    every = [command for names in COMMANDS.values() for _name, command in _commands(names)]
    rows = Counter(_row(param) for command in every for param in _parameters(command))
    return tuple(row for row, count in rows.most_common() if count >= COMMON_FROM)


def _name(param: click.Parameter) -> str:
    return re.split(r",? ", _names(param))[0]


def _name_of(row: str) -> str:
    return re.split(r"[,:]? ", row)[1]


def _as_of(where: str, names: list[str], owned: list[str]) -> str:
    """Say which options of an earlier command another one has, too; the shorter way."""
    lacking = [name for name in owned if name not in names]
    if len(lacking) > min(MISSING_MAX, len(names) - 2):
        return f"as of {where}, {', '.join(names)}"
    return f"all of {where}" + (f" but {', '.join(lacking)}" if lacking else "")


def _command(name: str, command: click.Command, seen: dict[str, str]) -> str:
    """Describe a command. A row that is among those of an earlier one, in `seen`, is only named."""
    shown = _parameters(command)
    rest = [p for p in shown if _row(p) not in _common()]
    own = [_row(p) for p in rest if _row(p) not in seen]
    elsewhere: dict[str, list[str]] = {}
    for p in (p for p in rest if _row(p) in seen):
        elsewhere.setdefault(seen[_row(p)], []).append(_name(p))
    seen |= dict.fromkeys(own, name)
    owned = {where: [_name_of(row) for row in seen if seen[row] == where] for where in elsewhere}
    also = [_as_of(where, names, owned[where]) for where, names in elsewhere.items()]
    also += [", ".join(_name(p) for p in shown if _row(p) in _common())]
    common = "; ".join(filter(None, also))
    arguments = [p.human_readable_name for p in shown if isinstance(p, click.Argument)]
    usage = [f"    harpctl {' '.join([name, '[OPTIONS]', *arguments])}\n"] if arguments else []
    lines = [f"### harpctl {name}\n", *usage, _paragraphs(inspect.cleandoc(command.help or "")) + "\n", *own]
    lines += [f"{chr(10) if own else ''}Also {common}."] if common else []
    return "\n".join(lines) + "\n"


def generate() -> str:
    """Return the text of docs/reference/cli.md."""
    parts = [HEAD]
    parts += [f"| {int(code)} | {text} |\n" for code, text in sorted(CODES.items())]
    parts += [COMMON, *(f"{row}\n" for row in _common())]
    seen: dict[str, str] = {}
    for panel, names in COMMANDS.items():
        parts.append(f"\n## {panel}\n")
        parts += ["\n" + _command(name, command, seen) for name, command in _commands(names)]
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(generate(), encoding="utf-8")
