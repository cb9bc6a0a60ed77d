# SPDX-License-Identifier: Apache-2.0
"""Options that are declared as the fields of a dataclass, for the commands that share them."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from harpctl.command_line import option

T = TypeVar("T")
OPTION = "option"  # the key in a field's metadata of what option() takes


def declare_option(default: T, *names: str, **more: Any) -> T:
    """Make a field of a dataclass that is an option: as option() takes it, named as the field without names.

    One whose default is False is a flag.
    """
    words = (names, {"is_flag": True if default is False else None, **more})
    return dataclasses.field(default=default, metadata={OPTION: words})


def group_options(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of dataclasses: with traffic=Traffic it is called with a Traffic of them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: object) -> None:
            for name, group in groups.items():
                given[name] = group(**{one.name: given.pop(one.name) for one in dataclasses.fields(group)})
            command(**given)

        # As decorators: the last is applied first.
        for field in reversed([one for group in groups.values() for one in dataclasses.fields(group)]):
            names, more = field.metadata[OPTION]
            default = field.default.value if isinstance(field.default, enum.Enum) else field.default
            option(*(names or [f"--{field.name.replace('_', '-')}"]), field.name, default=default, **more)(wrapper)
        return wrapper

    return decorate


class Values(click.Choice):  # type: ignore[type-arg]  # generic since click 8.4
    """The type of an option that takes a value of an enum; its default is written as the value, too."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        super().__init__([str(one.value) for one in kind])
        self.kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> enum.Enum:
        """Return the member of the enum that has this value."""
        return self.kind(super().convert(value, param, ctx))
