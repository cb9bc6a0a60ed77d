# SPDX-License-Identifier: Apache-2.0
"""The scapy layer as a module: an independent decoder, with which tests build and read packets."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

from harplab.dissector.tables import wire_doc
from tests.scapy_layer import scapy_layer

TEMPLATE = Path(__file__).with_name("harp_scapy.py.in")


@functools.cache
def load_layer() -> Any:
    """Return the module; it needs scapy."""
    module = types.ModuleType("harp_scapy")
    sys.modules[module.__name__] = module
    text = scapy_layer(wire_doc(), TEMPLATE.read_text(encoding="utf-8"))
    exec(compile(text, TEMPLATE.name, "exec"), module.__dict__)  # noqa: S102
    return module
