# SPDX-License-Identifier: Apache-2.0
"""The last line: use HARP on these hosts, for which messages and what it gains; or not, and why."""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.preflight.model import Comparison, Verdict
from harpctl.units import short_size

GAIN = 1.05  # from here on HARP counts as faster
LOSS = 0.95


def decide(unfit: Sequence[str], compared: Sequence[Comparison], other: str, why_not: str) -> Verdict:
    """Return the verdict; `why_not` is the reason where there is no comparison."""
    faster = [one for one in compared if one.ratio >= GAIN]
    slower = [one for one in compared if one.ratio <= LOSS]
    sizes = tuple(one.bytes for one in faster)
    gain = (min(one.ratio for one in faster), max(one.ratio for one in faster)) if faster else None
    if not compared:
        worth = f"HARP was not compared: {why_not}"
    elif gain is None:
        best = max(one.ratio for one in compared)
        worth = f"HARP is not faster than {other} here: {best:.2f}x at best."
    else:
        worth = f"HARP has {gain[0]:.2f}x to {gain[1]:.2f}x the rate of {other} with {_sizes(sizes)}."
        if slower:
            worth += f" It is slower with {_sizes([one.bytes for one in slower])}."
    if unfit:
        text = f"Do not use HARP yet: not fit are {', '.join(unfit)}. {worth}"
        return Verdict(use=False, text=text, sizes=sizes, gain=gain)
    if not compared:
        return Verdict(use=None, text=f"HARP works on these hosts. {worth}")
    if gain is None:
        return Verdict(use=False, text=f"Do not use HARP: {worth}")
    return Verdict(use=True, text=f"Use HARP: {worth}", sizes=sizes, gain=gain)


def _sizes(sizes: Sequence[int]) -> str:
    shown = [short_size(size) for size in sizes]
    return f"messages of {' and '.join([', '.join(shown[:-1]), shown[-1]] if shown[1:] else shown)}"
