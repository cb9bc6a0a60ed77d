# SPDX-License-Identifier: Apache-2.0
"""The rollback timer: a process of its own that undoes a network change when nobody stops it in time.

It survives the loss of the ssh session and of harpctl; on SIGTERM (the host is being shut down) it acts
at once. Usage: python -m harpctl.network.rollback_timer ID ROOT.
Everything it needs is imported at its start, as an unpacked harpctl may be gone when its time comes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import psutil

from harpctl.change import rollback
from harpctl.console import NoProgress
from harpctl.errors import HarpError
from harpctl.host.host import Host
from harpctl.host.runner import LiveRunner
from harpctl.network import guard_files
from harpctl.network.guard_files import Watch

POLL_S = 0.1
OTHERS_WAIT_S = 120.0
SHUTDOWN = threading.Event()


def _is_harpctl_alive(wanted: Watch) -> bool:
    """Return whether the watched harpctl is alive."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(wanted.pid)
        return process.create_time() == wanted.started and process.status() != psutil.STATUS_ZOMBIE
    return False


def _await_time_to_act(host: Host, wanted: Watch) -> bool:
    """Wait for the time to act; False when there is nothing left to do."""
    while guard_files.read_watch(host, wanted.transaction) is not None:
        late = time.monotonic() - wanted.deadline
        if SHUTDOWN.is_set() or late >= wanted.grace_s or (late >= 0 and not _is_harpctl_alive(wanted)):
            return True
        SHUTDOWN.wait(POLL_S)
    return False


def _is_reachable(host: Host, wanted: Watch) -> bool:
    """Return whether a harpctl that is gone left the host as it could be reached before, or confirmed."""
    return guard_files.is_confirmed(host, wanted.transaction) or not wanted.reachable.list_lost(host)


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, psutil.Error):
        os.kill(pid, signal.SIGKILL)
        psutil.Process(pid).wait(timeout=10)


def _undo_interrupted(host: Host) -> None:
    """Undo what was interrupted; wait for another harpctl that has begun to do so."""
    end = time.monotonic() + OTHERS_WAIT_S
    while True:
        try:
            rollback.recover_interrupted(host, progress=NoProgress())
        except HarpError:
            if time.monotonic() >= end:
                raise
            time.sleep(1)
        else:
            return


def watch_transaction(host: Host, transaction: str) -> None:
    """Watch one transaction, and take it back if it must be."""
    wanted = guard_files.read_watch(host, transaction)
    if wanted is None:
        return
    host.write_file(f"{guard_files.ALIVE}{transaction}", f"{os.getpid()}\n".encode(), 0o600)
    if _await_time_to_act(host, wanted):
        is_stuck = _is_harpctl_alive(wanted)
        is_reachable = not is_stuck and _is_reachable(host, wanted)
        if guard_files.claim_decision(host, transaction) and not is_reachable:
            if is_stuck:
                _kill_process(wanted.pid)
            _undo_interrupted(host)
    guard_files.end_watch(host, transaction)


def main() -> None:
    """Run with the transaction's id and the root directory as arguments."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: SHUTDOWN.set())
    watch_transaction(Host(sys.argv[2], LiveRunner()), sys.argv[1])


if __name__ == "__main__":
    main()
