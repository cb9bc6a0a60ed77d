# SPDX-License-Identifier: Apache-2.0
"""The lab, a Python package that measures, draws and tries things out, and that a host need not have.

Its modules are imported by name, where they are asked for.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from harpctl.errors import ExitCode, HarpError

LAB = "harplab"
NO_LAB = "`harpctl {}` needs the lab: install harp-lab (deb, rpm) or harpctl_lab (wheel), or use a checkout."


def is_there() -> bool:
    """Return whether it is installed."""
    return find_spec(LAB) is not None


def no_lab(words: str) -> HarpError:
    """Return the error of what needs it, a command or its option."""
    return HarpError(NO_LAB.format(words), exit_code=ExitCode.MISSING)


def import_part(module: str, words: str) -> ModuleType:
    """Import a module of it. Raises HarpError where it is not installed."""
    if not is_there():
        raise no_lab(words)
    return importlib.import_module(f"{LAB}.{module}")
