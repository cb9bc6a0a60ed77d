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
GUARD = f"{FOLDER}/guard-"  # what follows is the transaction; it is there while the rollback timer is armed
ALIVE = f"{FOLDER}/rollback-timer-"  # the timer makes it when it is ready
CONFIRM = f"{FOLDER}/confirm-"  # by which the operator says that the host can be reached


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """The change that a rollback timer watches."""

    transaction: str
    pid: int  # the harpctl that is watched
    started: float  # the start time of that process, because a pid may be used again
    deadline: float  # a time of time.monotonic(), which all processes of a host share
    grace_s: float  # how much longer a harpctl that is alive may take to undo things itself
    reachable: Reachable

    @property
    def left_s(self) -> float:
        """Return how long it is until the deadline, in seconds; not below 0."""
        return max(0.0, self.deadline - time.monotonic())


def begin_watch(host: Host, watch: Watch) -> None:
    """Write the file by which the rollback timer knows its change. Raises OSError."""
    end_watch(host, watch.transaction)
    for folder in ("/run", FOLDER):
        with contextlib.suppress(FileExistsError):
            host.make_dir(folder)
    host.write_file(f"{GUARD}{watch.transaction}", msgspec.json.encode(watch), 0o600)


def read_watch(host: Host, transaction: str) -> Watch | None:
    """Return the watch of a transaction; None where its file is absent."""
    data = host.read_bytes(f"{GUARD}{transaction}")
    return None if data is None else msgspec.json.decode(data, type=Watch)


def list_watched(host: Host) -> list[str]:
    """Return the transactions that a rollback timer guards."""
    return [path.removeprefix(GUARD) for path in host.glob(f"{GUARD}*")]


def claim_decision(host: Host, transaction: str) -> bool:
    """Claim the decision whether the change stays; return False where it was claimed already."""
    try:
        host.real(f"{GUARD}{transaction}", follow=False).unlink()
    except OSError:
        return False
    return True


def confirm_reachable(host: Host, transaction: str) -> None:
    """Record that the host can be reached. Raises OSError."""
    host.write_file(f"{CONFIRM}{transaction}", b"", 0o600)


def is_confirmed(host: Host, transaction: str) -> bool:
    """Return whether the operator confirmed."""
    return host.stat(f"{CONFIRM}{transaction}") is not None


def end_watch(host: Host, transaction: str) -> None:
    """Remove what is left of a watch, and the folder with the last of them."""
    for head in (GUARD, ALIVE, CONFIRM):
        with contextlib.suppress(OSError):
            host.remove(f"{head}{transaction}")
    with contextlib.suppress(OSError):
        host.remove(FOLDER)
