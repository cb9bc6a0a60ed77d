# SPDX-License-Identifier: Apache-2.0
"""Asks the kernel about the host's clock: whether something disciplines it, and how wrong it may be.

It asks as the plugin does (plugin/src/host/shared_clock.c): adjtimex(2), which changes nothing here.
"""

from __future__ import annotations

import ctypes
import os

import msgspec

TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized
STA_UNSYNC = 0x40
NEVER_SAID_US = 16_000_000  # esterror after a boot; phc2sys and others leave it so
# `struct timex` of a 64-bit machine as words: the first is `modes`, 0 for a question.
WORDS, ESTERROR_AT, STATUS_AT = 26, 4, 5


class ClockState(msgspec.Struct, frozen=True):
    """The state of CLOCK_REALTIME."""

    refusal: str = ""  # why the kernel does not say; "": it does
    is_disciplined: bool = True
    error_us: int | None = None  # as its daemon estimates; None: the daemon does not say


def clock_state(state: int, status: int, error_us: int) -> ClockState:
    """Read what adjtimex(2) returned, with the status and esterror that it wrote."""
    is_disciplined = state != TIME_ERROR and not status & STA_UNSYNC
    return ClockState(is_disciplined=is_disciplined, error_us=error_us if error_us < NEVER_SAID_US else None)


def read_clock() -> ClockState:
    """Ask the kernel."""
    libc, timex = ctypes.CDLL(None, use_errno=True), (ctypes.c_long * WORDS)()
    state = libc.adjtimex(timex)
    if state < 0:
        return ClockState(refusal=os.strerror(ctypes.get_errno()), is_disciplined=False)
    return clock_state(state, timex[STATUS_AT], timex[ESTERROR_AT])
