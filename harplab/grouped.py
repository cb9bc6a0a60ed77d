# SPDX-License-Identifier: Apache-2.0
"""Options that are declared as one dataclass, for the commands that share them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import get_type_hints

from harpctl.option_types import set_parameters


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by its fields, which are options."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def wrapper(**given: object) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter]
    set_parameters(wrapper, parameters)
    return wrapper


def _options(group: type) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in dataclasses.fields(group)
    ]
