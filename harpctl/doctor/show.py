"""How findings are shown to a person: by group, what is wrong with its cause and its repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from harpctl.console import OUT
from harpctl.doctor.model import Finding, Level

STYLES: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
HEADINGS = {
    "hugepages": "Hugepages",
    "confs": "Conf files",
    "enis": "ENIs",
    "plugin": "Plugin",
    "nccl": "NCCL's and HARP's variables",
    "limits": "Limits",
    "system": "System",
    "namespace": "Container and namespace",
    "peer": "Peer",
}


def show_all(findings: Sequence[Finding], *, verbose: bool) -> None:
    """Print every group: a line that counts what is well, then whatever is not."""
    for group, members in groupby(findings, key=lambda finding: finding.group):
        here = list(members)
        good = [finding for finding in here if finding.level == "ok"]
        OUT.print(f"{HEADINGS[group]}: {len(good)} of {len(here)} ok", style="bold", markup=False)
        for cause, skipped in _skipped(here).items():
            names = ", ".join(name.partition(".")[2] for name in skipped)
            OUT.print(f"  skip  {cause} ({names})", style=STYLES["skip"], markup=False)
        for finding in here:
            if finding.level in {"warn", "fail"}:
                _show(finding)
            elif verbose and finding.level == "ok":
                OUT.print(f"  ok    {finding.title}", style=STYLES["ok"], markup=False)
    OUT.print(summary(findings), markup=False)


def show_failures(findings: Sequence[Finding]) -> None:
    """Print what failed alone, for `validate`."""
    for finding in findings:
        if finding.level == "fail":
            _show(finding)


def _skipped(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """Give what was not looked at, by the reason."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        if finding.level == "skip":
            found.setdefault(finding.cause, []).append(finding.id)
    return found


def _show(finding: Finding) -> None:
    OUT.print(f"  {finding.level:<5} {finding.cause}", style=STYLES[finding.level], markup=False)
    OUT.print(f"        {finding.id}: {finding.title}", style="dim", markup=False)
    for command in finding.repair:
        OUT.print(f"        repair: {command}", markup=False)


def summary(findings: Sequence[Finding]) -> str:
    """Count the findings in one line."""
    count = Counter(finding.level for finding in findings)
    safe = sum(finding.is_safe for finding in findings)
    fix = f" `harpctl doctor --fix` repairs {safe} of them." if safe else ""
    return (
        f"{count['fail']} failed, {count['warn']} to be looked at, {count['skip']} skipped,"
        f" {count['ok']} ok.{fix}"
    )
