# SPDX-License-Identifier: Apache-2.0
"""Notices to lightcc's user: one type of error, one of warning, and the release of torch that it needs."""

from __future__ import annotations

import importlib
import re
import warnings

USAGE_ERROR = 2  # the exit status of what the user has to correct before a job can start
TORCH_MIN = (2, 4)


class LightccError(Exception):
    """A mistake that the user has to correct; the text is one sentence that says what and how."""


class LightccWarning(UserWarning):
    """Something that lightcc does not do for this job or model, and why."""


def warn(text: str) -> None:
    """Warn the user; Python shows a text once in a process."""
    warnings.warn(f"lightcc: {text}", LightccWarning, stacklevel=3)


def require_torch() -> None:
    """Raise LightccError where torch is missing or older than TORCH_MIN."""
    least = ".".join(map(str, TORCH_MIN))
    try:
        version = str(importlib.import_module("torch").__version__)
    except ImportError as error:
        raise LightccError(
            f"PyTorch cannot be imported ({error}): install torch {least} or newer beside lightcc"
        ) from error
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < TORCH_MIN:
        raise LightccError(f"torch {version} is too old: lightcc needs {least} or newer")
