# SPDX-License-Identifier: Apache-2.0
"""ENIs and facts that the tests of the network share: eth1 to eth3 beside eth0, which is the primary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harpctl.change.steps import Run, WriteFile
from harpctl.facts.model import Boot, Eni, Facts, Memory, System
from harpctl.host.host import Host
from harpctl.host.runner import TIMEOUT_S, Completed
from harpctl.network.model import EniPlan

ETH1 = EniPlan(
    number=0,
    name="eth1",
    mac="52:54:00:00:00:11",
    address="10.0.1.11/24",
    gateway="10.0.1.1",
    mtu=8500,
    queues=8,
)
ETH2 = EniPlan(number=1, name="eth2", mac="52:54:00:00:00:12", address="10.0.1.12/24", gateway="10.0.1.1")
ETH3 = EniPlan(number=2, name="eth3.100", address="fd00:1::13/64", gateway="fd00:1::1", mtu=9000)
ENIS = (ETH1, ETH2, ETH3)


def make_eni(name: str, **fields: object) -> Eni:
    given = {"name": name, "is_up": False, "mtu": 1500, "queues": 4, "queues_max": 8, **fields}
    return msgspec.convert(given, Eni)


def make_facts(*enis: Eni, kernel: str = "5.15.0") -> Facts:
    primary = make_eni("eth0", addresses=["10.0.0.10/24"], is_default_route=True, is_up=True)
    return Facts(system=System(kernel=kernel), boot=Boot(), memory=Memory(), enis=(primary, *enis))


class ScriptedRunner:
    """A runner that answers some commands with a text, and fails all others."""

    runs = True

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.ran: list[str] = []

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        del timeout_s
        line = " ".join(argv)
        self.ran.append(line)
        if line in self.answers:
            return Completed(tuple(argv), 0, self.answers[line])
        return Completed(tuple(argv), 1, "", "no such thing")


def write_file(root: Path, path: str, text: str = "", mode: int = 0o644) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def carry_out(host: Host, steps: Sequence[object]) -> None:
    """Write the files of a plan, as apply would."""
    for step in steps:
        if isinstance(step, WriteFile):
            host.real(step.path).parent.mkdir(parents=True, exist_ok=True)
            host.write_file(step.path, step.data, step.mode or 0o644)


def commands_of(steps: Sequence[object]) -> list[str]:
    return [" ".join(step.argv) for step in steps if isinstance(step, Run) and step.argv]


def undos_of(steps: Sequence[object]) -> list[str]:
    return [" ".join(step.undo) for step in steps if isinstance(step, Run) and step.undo]
