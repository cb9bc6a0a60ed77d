# SPDX-License-Identifier: Apache-2.0
"""The one command after which `harpctl validate` passes: the repairs of all that failed, in one line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from harpctl.doctor.model import CHECKS, Finding

SETUP = "harpctl setup"
COMMENT = "  # "
PROGRAMS = ("harpctl", "chmod", "ip", "sysctl", "systemctl", "mount", "ldconfig")
BLANKS = ("MBPS", "NAME", "FILE", "ADDRESS", "...")  # what a person has to fill in


def one_command(findings: Iterable[Finding]) -> str:
    """Return the command; "" where nothing failed, or something takes more than a command."""
    failed = [one for one in findings if one.level == "fail" and _is_validated(one)]
    if not failed or not all(one.repair and all(map(_is_command, one.repair)) for one in failed):
        return ""
    commands = [command.partition(COMMENT)[0] for one in failed for command in one.repair]
    setups = [command for command in commands if command.startswith(SETUP)]
    others = list(dict.fromkeys(command for command in commands if command not in setups))
    return " && ".join([*([_merge_setups(setups)] if setups else []), *others])


def _is_validated(finding: Finding) -> bool:
    return finding.group != "peer" and finding.id in CHECKS and CHECKS[finding.id].validates


def _is_command(repair: str) -> bool:
    try:
        words = shlex.split(repair.partition(COMMENT)[0])
    except ValueError:  # a quotation without an end, of a bundle
        return False
    return bool(words) and words[0] in PROGRAMS and not any(blank in repair for blank in BLANKS)


def _merge_setups(setups: Sequence[str]) -> str:
    """Make one setup of several: with all their options, each once, in the order in which they come."""
    options: dict[str, str] = {}
    for setup in setups:
        name = ""
        for word in shlex.split(setup)[2:]:
            if word.startswith("-"):
                name = word
                options.setdefault(name, "")
            elif name and not options[name]:
                options[name] = word
    words = [word for name, value in options.items() for word in (name, value) if word]
    return shlex.join([*SETUP.split(), *words])
