# SPDX-License-Identifier: Apache-2.0
"""The scapy layer that `harpctl dissector` writes, as a module: tests build and read packets with it."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from harpctl.dissector.command import LAYER, made


@functools.cache
def layer() -> Any:
    """Return the module; it needs scapy."""
    module = types.ModuleType("harp_scapy")
    sys.modules[module.__name__] = module
    exec(compile(made()[LAYER], LAYER, "exec"), module.__dict__)  # noqa: S102
    return module
