# SPDX-License-Identifier: Apache-2.0
"""docs/reference/cli.md, made from the commands themselves: `python -m tests.meta.cli_doc` writes it anew."""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from harpctl.cli import COMMANDS, load
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

| option | meaning |
|---|---|
"""
COMMON_FROM = 5  # commands that have the same option
KINDS = {
    "bool": "",
    "list[": "TEXT",
    "int": "N",
    "float": "N",
    "Path": "PATH",
    "str": "TEXT",
}  # first that fits


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def _paragraphs(text: str) -> str:
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(re.sub(r"\s*\n\s*", " ", block) for block in blocks)


def _option(parameter: inspect.Parameter) -> Any:
    """Return typer's description of a parameter: the OptionInfo or ArgumentInfo of its annotation."""
    (found,) = [note for note in parameter.annotation.__metadata__ if hasattr(note, "param_decls")]
    return found


def _kind(parameter: inspect.Parameter) -> str:
    kind = str(parameter.annotation.__origin__)
    return next((word for name, word in KINDS.items() if name in kind), "")


def _names(parameter: inspect.Parameter) -> str:
    option = _option(parameter)
    if isinstance(option, typer.models.ArgumentInfo):
        return f"`{option.metavar or parameter.name.upper()}`"
    # Inside Annotated the first name stands where else the default does.
    names = [name for name in (option.default, *(option.param_decls or ())) if isinstance(name, str)]
    names = names or [f"--{parameter.name.replace('_', '-')}"]
    shown = ", ".join(f"`{name}`" for name in names)
    value = option.metavar or _kind(parameter)
    return f"{shown} {_one_line(value)}" if value else shown


def _meaning(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if isinstance(default, enum.Enum):
        default = default.value
    shown = isinstance(default, (int, float, str)) and not isinstance(default, bool) and default != ""
    return _one_line(_option(parameter).help or "") + (f" Default: {default}." if shown else "")


def _parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """List a command's parameters; typer's context is none."""
    found = inspect.signature(command, eval_str=True).parameters.values()
    return [p for p in found if hasattr(p.annotation, "__metadata__") and not _option(p).hidden]


def _row(parameter: inspect.Parameter) -> str:
    return f"| {_names(parameter)} | {_meaning(parameter)} |"


def _commands(names: Iterable[str]) -> dict[str, Callable[..., None]]:
    """Load the commands of these names, with those of groups."""
    return {f"{name} {word}".strip(): command for name in names for word, command in load(name).items()}


@functools.cache
def _common() -> tuple[str, ...]:
    """Return the rows that many commands share, the most frequent first."""
    every = [command for names in COMMANDS.values() for command in _commands(names).values()]
    rows = Counter(_row(parameter) for command in every for parameter in _parameters(command))
    return tuple(row for row, count in rows.most_common() if count >= COMMON_FROM)


def _name(parameter: inspect.Parameter) -> str:
    return re.split(r",? ", _names(parameter))[0]


def _command(name: str, command: Callable[..., None], seen: dict[str, str]) -> str:
    """Describe a command. A row that is among those of an earlier one, in `seen`, is only named."""
    shown = _parameters(command)
    rest = [p for p in shown if _row(p) not in _common()]
    own = [_row(p) for p in rest if _row(p) not in seen]
    elsewhere: dict[str, list[str]] = {}
    for p in (p for p in rest if _row(p) in seen):
        elsewhere.setdefault(seen[_row(p)], []).append(_name(p))
    seen |= dict.fromkeys(own, name)
    also = [f"as of {where}, {', '.join(names)}" for where, names in elsewhere.items()]
    also += [", ".join(_name(p) for p in shown if _row(p) in _common())]
    common = "; ".join(filter(None, also))
    arguments = [_option(p).metavar for p in shown if isinstance(_option(p), typer.models.ArgumentInfo)]
    lines = [
        f"### harpctl {name}\n",
        f"    harpctl {' '.join([name, '[OPTIONS]', *arguments])}\n",
        _paragraphs(inspect.getdoc(command) or "") + "\n",
    ]
    lines += ["| option | meaning |\n|---|---|", *own] if own else []
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
        parts += ["\n" + _command(name, command, seen) for name, command in _commands(names).items()]
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(generate(), encoding="utf-8")
