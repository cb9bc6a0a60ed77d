# SPDX-License-Identifier: Apache-2.0
"""Shows findings to a person: by group, each with its cause and its repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from harpctl.console import OUT
from harpctl.doctor.advice import one_command
from harpctl.doctor.model import HEADINGS, Finding, Level, worst_level

STYLES: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
WORDS: dict[Level, str] = {"fail": "failed", "warn": "warned", "ok": "ok", "skip": "skipped"}


def show_all(findings: Sequence[Finding], *, verbose: bool) -> None:
    """Print the one command that repairs everything, then every group: its counts, and what failed."""
    if command := one_command(findings):
        OUT.print(f"First: {command}", style="bold", markup=False)
        OUT.print("  Then `harpctl validate` passes; what each part repairs is listed below.", markup=False)
    quiet: list[str] = []  # groups without findings
    for group, members in groupby(findings, key=lambda finding: finding.group):
        checks = [list(results) for _id, results in groupby(members, key=lambda finding: finding.id)]
        good = [results for results in checks if worst_level(results) == "ok"]
        count = Counter(worst_level(results) for results in checks)
        if not (verbose or count["warn"] or count["fail"]):
            quiet.append(f"{HEADINGS.get(group, group)} {count['ok']}")
            continue
        found = ", ".join(f"{count[level]} {word}" for level, word in WORDS.items() if count[level])
        OUT.print(f"{HEADINGS.get(group, group)}: {found}", style="bold", markup=False)
        for cause, names in (_group_skipped(checks) if verbose else {}).items():
            OUT.print(f"  skip  {cause} ({', '.join(names)})", style=STYLES["skip"], markup=False)
        for results in checks:
            if results in good and verbose:
                cause = f": {results[0].cause}" if results[0].cause else ""
                OUT.print(f"  ok    {results[0].title}{cause}", style=STYLES["ok"], markup=False)
            _show_check(results, ("warn", "fail"))
    if quiet:
        OUT.print(f"Without findings (checks that are ok): {', '.join(quiet)}", style="dim", markup=False)
    if not verbose and any(finding.level == "skip" for finding in findings):
        OUT.print("`harpctl doctor --verbose` shows what was skipped and why.", style="dim", markup=False)
    OUT.print(summarize_findings(findings), markup=False)


def show_failures(findings: Sequence[Finding]) -> None:
    """Print what failed alone, for `validate`."""
    for _id, results in groupby(findings, key=lambda finding: finding.id):
        _show_check(list(results), ("fail",))


def _group_skipped(checks: Sequence[Sequence[Finding]]) -> dict[str, list[str]]:
    """Return the names of the checks that were not made, by the reason."""
    found: dict[str, list[str]] = {}
    for finding in (finding for results in checks for finding in results if finding.level == "skip"):
        found.setdefault(finding.cause, []).append(finding.id.partition(".")[2])
    return found


def _show_check(results: Sequence[Finding], levels: Sequence[Level]) -> None:
    """Print what one check found, of some levels: its title once, then each cause with its repair."""
    shown = [finding for finding in results if finding.level in levels]
    if not shown:
        return
    level = worst_level(shown)
    OUT.print(f"  {level:<5} {shown[0].title} ({shown[0].id})", style=STYLES[level], markup=False)
    for finding in shown:
        OUT.print(f"        {finding.cause}", markup=False)
        for command in finding.repair:
            OUT.print(f"          repair: {command}", style="bold", markup=False)


def summarize_findings(findings: Sequence[Finding]) -> str:
    """Return the counts of the findings in one line."""
    count = Counter(finding.level for finding in findings)
    safe = sum(finding.is_safe for finding in findings)
    fix = f" `harpctl doctor --fix` repairs {safe} of them." if safe else ""
    return f"{count['fail']} failed, {count['warn']} warnings, {count['skip']} skipped, {count['ok']} ok.{fix}"
