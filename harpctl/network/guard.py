# SPDX-License-Identifier: Apache-2.0
"""The guard of network changes: a rollback timer that takes them back if the host can't be reached.

It implements change/apply.py's Guard. The rollback timer runs as a service of systemd where it can,
else as a process of its own session.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

import psutil

from harpctl.console import Progress
from harpctl.errors import HarpError
from harpctl.host.host import Host
from harpctl.network import guard_files, reachability
from harpctl.network.guard_files import Watch

DEADLINE_S = 120.0  # the time to find the host reachable, or for the operator to confirm
GRACE_S = 60.0  # the longest that undoing a network change takes
START_S = 20.0
LINK_UP_S = 5.0  # the most time that a link which has just come up needs until it carries packets
POLL_S = 0.1
MODULE = "harpctl.network.rollback_timer"


def _search_path() -> str:
    """Return where this harpctl's modules come from, for a Python that was not started as it was."""
    return os.pathsep.join(str(Path(path).absolute()) for path in sys.path)


class Guard:
    """One rollback timer for one transaction."""

    def __init__(self, deadline_s: float = DEADLINE_S, grace_s: float = GRACE_S) -> None:
        self._deadline_s = deadline_s
        self._grace_s = grace_s
        self._host = Host()
        self._watch: Watch | None = None
        self._pid = 0

    def start_timer(self, transaction: str, host: Host) -> None:
        """Start the rollback timer. Raises HarpError when it does not start: then nothing may be changed."""
        if self._watch is not None:
            return
        self._host = host
        before = reachability.find_reachable(host)
        self._watch = Watch(
            transaction=transaction,
            pid=os.getpid(),
            started=psutil.Process().create_time(),
            deadline=time.monotonic() + self._deadline_s,
            grace_s=self._grace_s,
            reachable=before,
        )
        try:
            guard_files.begin_watch(host, self._watch)
            is_up = any(
                start(transaction) and self._await_timer(transaction)
                for start in (self._start_service, self._start_process)
            )
        except OSError as error:
            self._refuse_change(error.strerror or str(error))
        if not is_up:
            self._refuse_change("it did not come up")

    def await_confirmation(self, progress: Progress) -> bool:
        """Find out whether the host can be reached as before, else wait for `harpctl confirm`.

        True: it can, and the timer is gone. False: nobody confirmed, and the change must be undone.
        """
        if self._watch is None:
            return True
        lost = self._await_links()
        if lost:
            progress.print(
                f"{', '.join(lost)} can't be reached any more. If you can reach this host, run"
                f" `harpctl confirm` within {self._watch.left_s:.0f} s; else the network change is undone."
            )
        while lost:
            if guard_files.is_confirmed(self._host, self._watch.transaction):
                break
            if not self._watch.left_s:
                return False
            time.sleep(POLL_S)
            lost = self._watch.reachable.list_lost(self._host)
        if not guard_files.claim_decision(self._host, self._watch.transaction):
            return False
        self.end_timer()
        return True

    def end_timer(self) -> None:
        """End the rollback timer, if there is one."""
        if self._watch is None:
            return
        guard_files.end_watch(self._host, self._watch.transaction)
        self._watch = None
        if self._pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = 0

    def _await_links(self) -> tuple[str, ...]:
        """Return what can't be reached, once links have had the time to come up."""
        end = time.monotonic() + min(LINK_UP_S, self._deadline_s)
        while True:
            lost = self._watch.reachable.list_lost(self._host) if self._watch else ()
            if not lost or time.monotonic() >= end:
                return lost
            time.sleep(POLL_S)

    # ---- the rollback timer's process ----

    def _timer_argv(self, transaction: str) -> list[str]:
        return [sys.executable, "-m", MODULE, transaction, str(self._host.root)]

    def _start_service(self, transaction: str) -> bool:
        """Start it where the end of the session does not reach it; False where that can't be."""
        host = self._host
        same = {host.read_link(f"/proc/{process}/ns/net") for process in ("self", "1")}
        if not host.is_real or len(same) > 1 or not host.is_dir("/run/systemd/system"):
            return False
        path = f"--setenv=PYTHONPATH={_search_path()}"
        unit = f"--unit=harp-rollback-timer-{transaction}"
        return host.run(["systemd-run", unit, path, *self._timer_argv(transaction)]).code == 0

    def _start_process(self, transaction: str) -> bool:
        """Start it as a child in a session of its own. Raises OSError."""
        null = os.devnull
        actions = [(os.POSIX_SPAWN_OPEN, fd, null, os.O_RDWR, 0) for fd in (0, 1, 2)]
        env = {**os.environ, "PYTHONPATH": _search_path()}
        argv = self._timer_argv(transaction)
        self._pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
        return True

    def _await_timer(self, transaction: str) -> bool:
        """Wait until it is ready; False when it is not in time."""
        end = time.monotonic() + START_S
        while self._host.stat(f"{guard_files.ALIVE}{transaction}") is None:
            if time.monotonic() >= end or self._has_ended():
                return False
            time.sleep(POLL_S)
        return True

    def _has_ended(self) -> bool:
        if not self._pid:
            return False
        pid, _status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._pid = 0
        return bool(pid)

    def _refuse_change(self, reason: str) -> NoReturn:
        transaction = self._watch.transaction if self._watch else ""
        self.end_timer()
        raise HarpError(
            f"The rollback timer of {transaction} can't be started: {reason}."
            " Without it the network is not changed.",
            "Try again, or leave the network as it is: --no-network",
        )
