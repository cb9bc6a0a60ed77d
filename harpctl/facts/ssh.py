# SPDX-License-Identifier: Apache-2.0
"""The ssh connections that this process runs in; sudo hides them from it, but not from its ancestors."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

import psutil


class Connection(NamedTuple):
    """Both ends of a connection, as sshd writes them: an address, with %ZONE where it is link-local."""

    client: str
    server: str


def find_connections() -> list[Connection]:
    """Return the connections, the nearest first; none where there is none, or none can be read."""
    values = [os.environ.get("SSH_CONNECTION", "")]
    with contextlib.suppress(psutil.Error):
        for parent in psutil.Process().parents():
            with contextlib.suppress(psutil.Error, OSError):  # another user's process
                values.append(parent.environ().get("SSH_CONNECTION", ""))
    fields = [text.split() for text in dict.fromkeys(values)]
    return [Connection(words[0], words[2]) for words in fields if len(words) == 4]
