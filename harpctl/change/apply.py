"""Apply a plan as one transaction: all of it holds afterwards, or nothing of it."""

from __future__ import annotations

from typing import Protocol

from harpctl.change.steps import Plan
from harpctl.console import Progress
from harpctl.host.door import Host


class Guard(Protocol):
    """Stands by while steps are applied that may cut the host off, and takes them back if nobody confirms.

    Its dead man is a process of its own, started with exec (a fork would inherit the journal's lock). Until a
    transaction is done it counts as interrupted, so all the dead man does when its time is up is to kill the
    harpctl that holds /var/lib/harp/lock, if any still does, and to call rollback.recover(host).
    """

    def arm(self, transaction: str, host: Host) -> None:
        """Start the dead man, before the first guarded step. Raises HarpError: then nothing guarded is done."""

    def settle(self, progress: Progress) -> bool:
        """Wait, after the last guarded step of a group, until the host is known to be reachable.

        True: confirmed, and the dead man is gone. False: not confirmed; apply takes everything back.
        """

    def disarm(self) -> None:
        """End the dead man; apply has taken everything back itself. Also called when it was never armed."""


def apply(plan: Plan, host: Host, *, what: str, progress: Progress, guard: Guard | None = None) -> str:
    """Carry out what of a plan does not hold yet; give the transaction's id, "" when all holds already."""
    raise NotImplementedError(plan, host, what, progress, guard)
