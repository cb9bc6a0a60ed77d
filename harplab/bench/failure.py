# SPDX-License-Identifier: Apache-2.0
"""Breaks something in the lab during a measurement, as `eni1:down@3+4` says."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Sequence

from harpctl.errors import ExitCode, HarpError
from harplab.lab.lab import Lab
from harplab.lab.numbers import parse_share
from harplab.lab.rules import IN, OUT
from harplab.lab.spec import LabSpec

_FORM = re.compile(
    r"^(?:(?P<host>\d+)/)?eni(?P<eni>\d+):(?P<kind>[a-z-]+)(?:=(?P<figure>\d+(?:\.\d+)?)(?P<percent>%)?)?@(?P<at>\d+(?:\.\d+)?)(?:\+(?P<for>\d+(?:\.\d+)?))?$"
)


class Kind(str, enum.Enum):
    """A way in which an ENI fails."""

    DOWN = "down"  # the link goes down
    UNPLUG = "unplug"  # the cable is pulled, where there is a switch
    ADDRESS = "address"  # the address goes away
    BLACKHOLE = "blackhole"  # nothing comes in or goes out, without a signal
    SILENT_IN = "silent-in"
    SILENT_OUT = "silent-out"
    DROP = "drop"  # with a share: that many packets of both directions are lost
    CAP = "cap"  # with Mbit/s


WITH_FIGURE = (Kind.DROP, Kind.CAP)


@dataclasses.dataclass(frozen=True)
class Failure:
    """An ENI of a host that fails `at_s` after the start, and is repaired `for_s` later or not."""

    host: int
    eni: int
    kind: Kind
    at_s: float
    for_s: float | None
    figure: float = 0.0  # the figure of kinds that take one

    def name(self) -> str:
        """Name the failing ENI and how it fails."""
        figure = f" {self.figure:g}" if self.kind in WITH_FIGURE else ""
        return f"host {self.host} eni{self.eni} {self.kind.value}{figure}"

    def end_s(self) -> float:
        """Return the time at which nothing more happens."""
        return self.at_s + (self.for_s or 0.0)


@dataclasses.dataclass(frozen=True)
class Event:
    """A failure begins or is repaired."""

    at_s: float
    failure: Failure
    breaks: bool

    def name(self) -> str:
        """Return what happens."""
        return self.failure.name() if self.breaks else f"{self.failure.name()} repaired"


def parse_failure(text: str, spec: LabSpec) -> Failure:
    """Read [HOST/]eniN:KIND[=FIGURE]@AT[+FOR]; the host is 0, which sends, unless it is given."""
    match = _FORM.match(text.strip())
    kinds = {kind.value: kind for kind in Kind}
    kind = kinds.get(match["kind"]) if match else None
    if (
        not match
        or not kind
        or (kind in WITH_FIGURE) != (match["figure"] is not None)
        or (match["percent"] and kind is not Kind.DROP)
    ):
        raise HarpError(
            f"{text!r} is not a failure.",
            "Write [HOST/]eniN:KIND@SECONDS[+SECONDS], as eni1:down@3+4; kinds are "
            + ", ".join(f"{kind.value}=N" if kind in WITH_FIGURE else kind.value for kind in Kind)
            + ".",
            ExitCode.USAGE,
        )
    host, eni = int(match["host"] or 0), int(match["eni"])
    if host >= spec.hosts or eni >= spec.eni_count(host):
        raise HarpError(
            f"{text!r} names an ENI that this lab lacks: {spec.describe()}.",
            "Number hosts and ENIs from 0, or add some with --ranks and --enis.",
            ExitCode.USAGE,
        )
    if kind is Kind.UNPLUG and not spec.has_fabric:
        raise HarpError(f"{text!r} needs a switch.", "Add --switch.", ExitCode.USAGE)
    lasts = float(match["for"]) if match["for"] else None
    figure = parse_share((match["figure"] or "0") + (match["percent"] or ""))
    if kind is Kind.DROP and figure > 1:
        raise HarpError(
            f"{text!r} drops more packets than there are.",
            "Write drop=0.01 or drop=1% for one of a hundred.",
            ExitCode.USAGE,
        )
    return Failure(host, eni, kind, float(match["at"]), lasts, figure)


def events_of(failures: Sequence[Failure]) -> list[Event]:
    """Return what happens, in its order."""
    events = [Event(failure.at_s, failure, breaks=True) for failure in failures]
    events += [
        Event(failure.at_s + failure.for_s, failure, breaks=False)
        for failure in failures
        if failure.for_s is not None
    ]
    return sorted(events, key=lambda event: event.at_s)


def apply_event(lab: Lab, event: Event) -> None:
    """Break an ENI of the lab, or repair it."""
    failure, on = event.failure, event.breaks
    host, eni = failure.host, failure.eni
    if failure.kind is Kind.DOWN:
        lab.set_link(host, eni, up=not on)
    elif failure.kind is Kind.UNPLUG:
        (lab.unplug if on else lab.plug)(host, eni)
    elif failure.kind is Kind.ADDRESS:
        (lab.remove_address if on else lab.add_address)(host, eni)
    elif failure.kind is Kind.DROP:
        lab.faults(host, eni).drop(failure.figure if on else 0.0)
    elif failure.kind is Kind.CAP:
        lab.cap(host, eni, failure.figure if on else lab.spec.cap_of(eni))
    elif failure.kind is Kind.BLACKHOLE:
        lab.faults(host, eni).blackhole(on=on)
    else:
        lab.faults(host, eni).blackhole(IN if failure.kind is Kind.SILENT_IN else OUT, on=on)
