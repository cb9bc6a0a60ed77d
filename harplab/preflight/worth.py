# SPDX-License-Identifier: Apache-2.0
"""Says in words what HARP gains between two hosts: for which messages, and where it is slower."""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.preflight.model import Comparison, Verdict
from harpctl.units import short_size

GAIN = 1.05  # from here on HARP counts as faster
LOSS = 0.95


def judge_worth(compared: Sequence[Comparison], other: str) -> Verdict:
    """Return whether to use HARP by what was compared, and the reason."""
    faster = [one for one in compared if one.ratio >= GAIN]
    slower = [one for one in compared if one.ratio <= LOSS]
    if not faster:
        best = max(one.ratio for one in compared)
        return Verdict(use=False, text=f"HARP is not faster than {other} here: {best:.2f}x at best.")
    gain, sizes = (
        (min(one.ratio for one in faster), max(one.ratio for one in faster)),
        [o.bytes for o in faster],
    )
    text = f"HARP has {gain[0]:.2f}x to {gain[1]:.2f}x the rate of {other} with {_sizes_text(sizes)}."
    if slower:
        text += f" It is slower with {_sizes_text([one.bytes for one in slower])}."
    return Verdict(use=True, text=text, sizes=tuple(sizes), gain=gain)


def _sizes_text(sizes: Sequence[int]) -> str:
    shown = [short_size(size) for size in sizes]
    return f"messages of {' and '.join([', '.join(shown[:-1]), shown[-1]] if shown[1:] else shown)}"
