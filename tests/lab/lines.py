# SPDX-License-Identifier: Apache-2.0
"""Run a connection whose receiver's buffer is read by a second thread, as a GPU reads LL and LL128 lines."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

from harplab.lab.lab import Lab

RUN_S = 60


def watch_lines(
    lab: Lab, reader: Path, plugin: Path, layout: str, messages: int, ifname: str, engine: str
) -> dict[str, int]:
    """Return what the reader counted."""
    env = {**os.environ, "HARP_IFNAME": f"={ifname}", "HARP_ENGINE": engine, "HARP_PATHS": "2"}
    words = [layout, str(messages), "1"]
    with contextlib.ExitStack() as stack:
        receiver = subprocess.Popen(
            lab.command(0, [str(reader), str(plugin), "recv", *words]),
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        stack.callback(receiver.wait)
        stack.callback(receiver.kill)
        assert receiver.stdout is not None
        handle = receiver.stdout.readline().strip()
        argv = lab.command(1, [str(reader), str(plugin), "send", *words, handle])
        sender = subprocess.run(argv, env=env, timeout=RUN_S, check=False)
        output, _ = receiver.communicate(timeout=RUN_S)
        assert (sender.returncode, receiver.returncode) == (0, 0)
    counts: dict[str, int] = json.loads(output)
    return counts


def assert_clean(counts: dict[str, int]) -> None:
    """Assert that lines were seen while they landed, and none was wrong."""
    assert counts.pop("early") > 0, "nothing was seen while it landed"
    assert counts == {"torn": 0, "undone": 0, "beyond": 0, "late": 0}
