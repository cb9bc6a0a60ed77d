# SPDX-License-Identifier: Apache-2.0
"""Findings and checks: what is looked at, what came out, and what repairs it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from harpctl.change.steps import AnyStep

if TYPE_CHECKING:
    from harpctl.doctor.context import Context

Level = Literal["ok", "warn", "fail", "skip"]
LEVELS: tuple[Level, ...] = ("fail", "warn", "skip", "ok")  # the worst first
HEADINGS = {  # groups, in the order in which they are shown
    "hugepages": "Hugepages",
    "confs": "Conf files",
    "enis": "ENIs",
    "plugin": "Plugin",
    "nccl": "NCCL's and HARP's variables",
    "drivers": "Drivers",
    "xdp": "AF_XDP",
    "limits": "Limits",
    "system": "System",
    "namespace": "Container and namespace",
    "peer": "Peer",
}


class CheckResult(msgspec.Struct, frozen=True):
    """One result of a check. A check without results, or with an "ok" one, passed."""

    level: Level
    cause: str
    repair: tuple[str, ...] = ()  # the commands in their order; where no command can, what to change
    steps: tuple[AnyStep, ...] = ()  # the same as steps, where --fix may take them unasked


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check, as it is shown."""

    id: str  # "hugepages.mount"
    title: str  # what holds when all is well
    group: str
    level: Level
    cause: str = ""
    repair: tuple[str, ...] = ()
    is_safe: bool = False  # doctor --fix carries the repair out
    steps: tuple[AnyStep, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A named check of the host. `validates`: a failure means that the installation is wrong."""

    id: str
    title: str
    run: Callable[[Context], Iterable[CheckResult]]
    validates: bool = True
    needs: tuple[Callable[[Context], str], ...] = ()  # each returns why the check does not apply, or ""

    @property
    def group(self) -> str:
        """Return the group, the first word of the id."""
        return self.id.partition(".")[0]


CheckFunction = Callable[["Context"], Iterable[CheckResult]]
Need = Callable[["Context"], str]
CHECKS: dict[str, Check] = {}


def check(id_: str, title: str, *needs: Need, validates: bool = True) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as a check, in the order of the source."""

    def enter(function: CheckFunction) -> CheckFunction:
        CHECKS[id_] = Check(id=id_, title=title, run=function, validates=validates, needs=needs)
        return function

    return enter


def fail(cause: str, *repair: str, steps: Iterable[AnyStep] = ()) -> CheckResult:
    """Return a failure: HARP will not work, or not as it was set up."""
    return CheckResult("fail", cause, repair, tuple(steps))


def warn(cause: str, *repair: str, steps: Iterable[AnyStep] = ()) -> CheckResult:
    """Return a warning: HARP works, but worse than it could, or unexpectedly."""
    return CheckResult("warn", cause, repair, tuple(steps))


def skip(cause: str) -> CheckResult:
    """Return why the check could not run."""
    return CheckResult("skip", cause)


def to_plain(finding: Finding) -> dict[str, Any]:
    """Return a finding for --json: the commands, not the steps behind them."""
    shown: dict[str, Any] = msgspec.to_builtins(finding)
    shown.pop("steps")
    return shown


def worst_level(findings: Iterable[Finding]) -> Level:
    """Return the worst level of some findings; "ok" for none."""
    found = {finding.level for finding in findings}
    return next((level for level in LEVELS if level in found), "ok")


def of_link(name: str, *words: object) -> str:
    """Return the command that sets something of an interface, whatever its name holds."""
    return shlex.join(["ip", "link", "set", "dev", name, *map(str, words)])


def edit_command(path: str, *words: str) -> str:
    """Return the command that changes a file so that rollback knows of it (harpctl/edit.py)."""
    return shlex.join(["harpctl", "edit", path, *words])
