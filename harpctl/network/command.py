# SPDX-License-Identifier: Apache-2.0
"""`harpctl confirm`: confirm that the host can be reached after a network change."""

from __future__ import annotations

import msgspec

from harpctl.command_line import command, json_option
from harpctl.console import OUT, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.network import guard_files


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `confirm --json`."""

    transactions: tuple[str, ...]


def confirm_all(host: Host) -> Confirmed:
    """Confirm every change that waits. Raises HarpError where none does."""
    waiting = guard_files.list_watched(host)
    if not waiting:
        raise HarpError(
            "No network change waits for a confirmation.",
            "`harpctl rollback --list` shows what was changed; what was undone already is not in it.",
            ExitCode.MISSING,
        )
    for transaction in waiting:
        try:
            guard_files.confirm_reachable(host, transaction)
        except OSError as error:
            raise HarpError(
                f"{transaction} can't be confirmed: {error.strerror}.",
                "Run: sudo harpctl confirm",
                ExitCode.REFUSED,
            ) from None
    return Confirmed(transactions=tuple(waiting))


@command()
@json_option
def confirm(*, as_json: bool) -> None:
    """Keep a network change that would otherwise be undone, because this host can be reached."""
    done = confirm_all(Host())
    if as_json:
        print_json(done)
        return
    for transaction in done.transactions:
        OUT.print(f"Confirmed: the network change of {transaction} stays.", markup=False)
