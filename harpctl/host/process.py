# SPDX-License-Identifier: Apache-2.0
"""What other processes of a host say of themselves."""

from __future__ import annotations

from harpctl.host.host import Host


def read_environment(host: Host, pid: int | str) -> dict[str, str] | None:
    """Return the environment with which a process was started; None where it cannot be read."""
    text = host.read_text(f"/proc/{pid}/environ")
    return None if text is None else dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
