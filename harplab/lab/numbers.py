# SPDX-License-Identifier: Apache-2.0
"""Options of a lab as people write them: --enis 2,8, --cap 1000,4000, --loss 0.1, --police."""

from __future__ import annotations

import math

from harpctl.errors import ExitCode, HarpError
from harplab.lab.spec import POLICE_BURST_KIB


def parse_police(*, police: bool, burst_kib: float | None) -> float | None:
    """Return the burst of the caps' policers in KiB; None where caps queue."""
    if burst_kib is not None and not police:
        raise HarpError("--police-burst is for --police.", "Add --police.", ExitCode.USAGE)
    return (POLICE_BURST_KIB if burst_kib is None else burst_kib) if police else None


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Read one number, or a comma list."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise HarpError(
            f"{option} takes a number or a comma list, not {text!r}.",
            f"Write {option} 2, or {option} 2,8.",
            ExitCode.USAGE,
        ) from None


def parse_enis(text: str, hosts: int) -> tuple[int, tuple[int, ...]]:
    """Read numbers of ENIs: the most, and those of each host where they differ."""
    counts = parse_numbers(text, "--enis")
    if any(count != int(count) for count in counts):
        raise HarpError(
            f"A host has a whole number of ENIs, not {text}.",
            "Write --enis 2, or --enis 2,8.",
            ExitCode.USAGE,
        )
    whole = tuple(int(count) for count in counts)
    if len(whole) > 1 and len(whole) != hosts:
        raise HarpError(
            f"--enis has {len(whole)} numbers for {hosts} hosts.",
            "Give one, or one per host.",
            ExitCode.USAGE,
        )
    return max(whole), whole if len(set(whole)) > 1 else ()


def parse_caps(text: str | None) -> float | tuple[float, ...] | None:
    """Read caps in Mbit/s: one for all ENIs, or one for each. None for an option that is not given."""
    if not text:
        return None
    caps = parse_numbers(text, "--cap")
    return caps[0] if len(caps) == 1 else caps


def parse_share(text: str) -> float:
    """Read a share of packets: 0.01 or 1%."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise HarpError(f"{text!r} is not a share of packets.", "Write 0.01 or 1%.", ExitCode.USAGE) from None


def parse_loss(text: str) -> float:
    """Read a loss in percent, 0.1 or 0.1%, into a share of what arrives."""
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent < 100:
        raise HarpError(
            f"--loss takes a percentage from 0 to below 100, not {text!r}.",
            "Write --loss 1 to lose 1 of 100, or --loss 0.1 to lose 1 of 1000.",
            ExitCode.USAGE,
        )
    return percent / 100
