# SPDX-License-Identifier: Apache-2.0
"""Commands in hints, completed so that a pasted one acts on the same host and with the same options.

A hint names `harpctl setup --gpus 8`. As a hint of `harpctl setup --root /mnt/image --dry-run` it has to be
`harpctl setup --gpus 8 --root=/mnt/image --dry-run`, or it would change another machine than was meant.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterable, Sequence

import click

COMMAND = re.compile(
    r"`(?:sudo )?harpctl (?P<ticked>[^`]+)`|(?<=: )(?:sudo )?harpctl (?P<last>[^\n]+?)(?=  #|$)", re.MULTILINE
)
WHERE = ("--root", "--dry-run", "--hosts", "--remote")  # what goes with whatever command a hint names
NEVER = ("--json",)  # how an answer is printed
Words = tuple[str, list[str]]  # an option's longest name, and the words that give it; "" for arguments


def option_words(param: click.Parameter, value: object) -> list[str]:
    """Write a parameter of a command as it is given."""
    values = [_value_text(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
    if param.param_type_name == "argument":
        return values
    if isinstance(value, bool):
        return [max(param.opts if value else param.secondary_opts, key=len)]
    return [f"{max(param.opts, key=len)}={one}" for one in values]


def _value_text(value: object) -> str:
    return str(value.value if isinstance(value, enum.Enum) else value)


def given_options(context: click.Context) -> list[Words]:
    """Return what was given to a command on its command line."""
    found: list[Words] = []
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if source is not None and source.name == "COMMANDLINE":
            is_argument = param.param_type_name == "argument"
            name = "" if is_argument else max(param.opts, key=len)
            found.append((name, option_words(param, context.params[str(param.name)])))
    return found


def complete_hint(hint: str, context: click.Context | None, more: Sequence[Words] = ()) -> str:
    """Return a hint whose commands have the options of the current command, and `more`."""
    if context is None:
        return hint
    set_names = {name for name, _words in more}
    given = [*(one for one in given_options(context) if one[0] not in set_names), *more]

    def carried(match: re.Match[str]) -> str:
        words = match["ticked"] or match["last"]
        added = _lacking_words(words.split(), given, context)
        return match[0].replace(words, " ".join([words, *map(shlex.quote, added)]))

    return COMMAND.sub(carried, hint)


def _lacking_words(words: Sequence[str], given: Iterable[Words], context: click.Context) -> list[str]:
    """Return the words that a command of a hint still needs."""
    root = context.find_root()
    target = root.command.get_command(root, words[0]) if isinstance(root.command, click.Group) else None
    if target is None:
        return []
    known = {max(param.opts, key=len): set(param.opts) for param in target.params}
    there = {word.partition("=")[0] for word in words}
    is_same = words[0] == context.command.name
    added: list[str] = []
    arguments: list[str] = []
    for name, its in given:
        if name in NEVER or known.get(name, set()) & there or name in there:
            continue
        if not name:
            arguments = its if is_same and not any(word[0] != "-" for word in words[1:]) else []
        elif name in known and (is_same or name in WHERE):
            added += its
    return added + arguments
