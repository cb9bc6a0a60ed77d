# SPDX-License-Identifier: Apache-2.0
"""Message sizes as people write them."""

from __future__ import annotations

import re

from harpctl.errors import ExitCode, HarpError
from harpctl.units import BYTES, short_size

_SIZE = re.compile(r"^(?P<digits>\d+(?:\.\d+)?)(?P<unit>[KMG]?)(?:I?B)?$", re.IGNORECASE)
SIZE_MAX_BYTES = 1 << 30


def parse_size(text: str) -> int:
    """Read one size such as 8, 4K, 1.5M or 64KiB (units of 1024)."""
    match = _SIZE.match(text.strip())
    bytes_ = float(match["digits"]) * BYTES[match["unit"].upper()] if match else 0.5
    if bytes_ != int(bytes_) or bytes_ > SIZE_MAX_BYTES:
        raise HarpError(
            f"{text.strip()!r} is not a message size.",
            f"Write bytes or K, M, G of 1024, up to {short_size(SIZE_MAX_BYTES)}: 8,4K,512K,1M.",
            ExitCode.USAGE,
        )
    return int(bytes_)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read a comma list of sizes, in the order given."""
    return tuple(parse_size(word) for word in text.split(","))
