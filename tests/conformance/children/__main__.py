# SPDX-License-Identifier: Apache-2.0
"""Scenarios that need a process of their own: `python -m tests.conformance.children NAME VERSION`.

Each prints JSON lines and exits with 0 when all went as it must. What comes in on standard input is one JSON
value a line. SIGPIPE has its default action here, so that a write to a dead peer that could raise it shows.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from tests.conformance.children import configuration, crowd, ends, fork, process, unanswered

SCENARIOS: dict[str, Callable[[int], None]] = {
    scenario.__name__: scenario
    for scenario in (
        configuration.unconfigured,
        configuration.properties,
        configuration.striped,
        configuration.merge,
        configuration.merge_again,
        configuration.merge_unplaced,
        configuration.matrix,
        process.reload,
        process.teardown,
        process.leave,
        process.wait,
        fork.fork,
        fork.listen_and_fork,
        fork.connect_and_fork,
        ends.receiver,
        ends.sender,
        ends.hesitant,
        ends.sender_to_each,
        crowd.overrun,
        crowd.crowd,
        crowd.cross,
        crowd.scale,
        unanswered.dial,
        unanswered.give_up,
        unanswered.give_up_beside,
    )
}

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    SCENARIOS[sys.argv[1]](int(sys.argv[2]))
