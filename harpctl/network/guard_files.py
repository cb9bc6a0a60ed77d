# SPDX-License-Identifier: Apache-2.0
"""The files in /run/harp through which harpctl, the rollback timer and `harpctl confirm` communicate.

`guard-<transaction>` exists as long as the rollback timer is armed. Whoever removes it has decided: harpctl,
that the host is reachable or that it undoes everything itself; the timer, that it undoes everything.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from harpctl.host.host import Host
from harpctl.network.reachability import Reachable

FOLDER = "/run/harp"


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What the rollback timer needs to know."""

    transaction: str
    pid: int  # of the harpctl that is watched
    started: float  # when that process was, for a pid may be used again
    deadline: float  # of time.monotonic(), which all processes of a host share
    grace_s: float  # how much longer a harpctl that is alive may take to undo things itself
    reachable: Reachable

    @property
    def left_s(self) -> float:
        """Return how long it is until the deadline, in seconds; not below 0."""
        return max(0.0, self.deadline - time.monotonic())


def guard_path(transaction: str) -> str:
    """Return the file that exists while the rollback timer is armed."""
    return f"{FOLDER}/guard-{transaction}"


def alive_path(transaction: str) -> str:
    """Return the file that the rollback timer makes when it is ready."""
    return f"{FOLDER}/rollback-timer-{transaction}"


def confirm_path(transaction: str) -> str:
    """Return the file by which the operator confirms that the host can be reached."""
    return f"{FOLDER}/confirm-{transaction}"


def begin(host: Host, watch: Watch) -> None:
    """Arm. Raises OSError."""
    forget(host, watch.transaction)
    for folder in ("/run", FOLDER):
        with contextlib.suppress(FileExistsError):
            host.make_dir(folder)
    host.write_file(guard_path(watch.transaction), msgspec.json.encode(watch), 0o600)


def read(host: Host, transaction: str) -> Watch | None:
    """Return the watch; None where it is not there, or not any more."""
    data = host.read_bytes(guard_path(transaction))
    return None if data is None else msgspec.json.decode(data, type=Watch)


def armed(host: Host) -> list[str]:
    """Return the transactions that a rollback timer guards."""
    head = guard_path("")
    return [path.removeprefix(head) for path in host.glob(f"{head}*")]


def decide(host: Host, transaction: str) -> bool:
    """Claim the decision; return False where it was claimed already."""
    try:
        host.real(guard_path(transaction), follow=False).unlink()
    except OSError:
        return False
    return True


def confirm(host: Host, transaction: str) -> None:
    """Record that the host can be reached. Raises OSError."""
    host.write_file(confirm_path(transaction), b"", 0o600)


def is_confirmed(host: Host, transaction: str) -> bool:
    """Return whether the operator confirmed."""
    return host.stat(confirm_path(transaction)) is not None


def forget(host: Host, transaction: str) -> None:
    """Remove what is left of a watch, and the folder with the last of them."""
    for path in (guard_path(transaction), alive_path(transaction), confirm_path(transaction)):
        with contextlib.suppress(OSError):
            host.remove(path)
    with contextlib.suppress(OSError):
        host.remove(FOLDER)
