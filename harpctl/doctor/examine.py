# SPDX-License-Identifier: Apache-2.0
"""Runs the checks and gathers their findings; takes the safe repairs as a plan."""

from __future__ import annotations

from collections.abc import Iterable

from harpctl.change.steps import Group, Plan
from harpctl.doctor import (  # noqa: F401 - they enter their checks
    confs,
    drivers,
    enis,
    hugepages,
    limits,
    namespace,
    nccl,
    nccl_itself,
    peer,
    plugin,
    system,
    xdp,
)
from harpctl.doctor.context import Context
from harpctl.doctor.model import CHECKS, HEADINGS, Check, CheckResult, Finding, fail, skip
from harpctl.doctor.repair import adapt_repair
from harpctl.errors import ExitCode, HarpError


def run_checks(context: Context, *, only_validating: bool = False) -> list[Finding]:
    """Run the checks in their order; a check without results yields one finding that is ok."""
    findings = []
    for one in sorted(CHECKS.values(), key=lambda one: list(HEADINGS).index(one.group)):
        if (one.group == "peer" and not context.options.peers) or (only_validating and not one.validates):
            continue
        findings += _run_check(one, context)
    return findings


def _run_check(one: Check, context: Context) -> list[Finding]:
    unmet = next(filter(None, (need(context) for need in one.needs)), "")
    results = [skip(unmet)] if unmet else _collect_results(one, context)
    found = [
        Finding(
            id=one.id,
            title=one.title,
            group=one.group,
            level=result.level,
            cause=result.cause,
            repair=tuple(adapt_repair(command, context) for command in result.repair),
            is_safe=bool(result.steps),
            steps=result.steps,
        )
        for result in results
    ]
    return found or [Finding(id=one.id, title=one.title, group=one.group, level="ok")]


def _collect_results(one: Check, context: Context) -> list[CheckResult]:
    try:
        return list(one.run(context))
    except HarpError as error:
        is_root = context.facts.system.is_root or not context.is_running
        if error.exit_code is ExitCode.MISSING and not is_root:
            return [skip(error.message)]
        return [fail(error.message, *([error.hint] if error.hint else []))]
    except OSError as error:
        return [skip(f"The check could not run: {error}.")]


def safe_repairs(findings: Iterable[Finding]) -> list[Plan]:
    """Return the repairs that --fix takes unasked, one plan for each finding, so that one may fail alone."""
    return [
        Plan(groups=(Group(name=f"{finding.id}: {finding.repair[0]}", steps=finding.steps),))
        for finding in findings
        if finding.steps
    ]
