"""What is broken in the lab during a measurement, and when: `eni1:down@3+4`."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Sequence

from harpctl.errors import ExitCode, HarpError

_FORM = re.compile(
    r"^(?:(?P<host>\d+)/)?eni(?P<eni>\d+):(?P<kind>[a-z-]+)@(?P<at>\d+(?:\.\d+)?)(?:\+(?P<for>\d+(?:\.\d+)?))?$"
)


class Kind(str, enum.Enum):
    """How an ENI fails."""

    DOWN = "down"  # the link goes down, at both ends
    BLACKHOLE = "blackhole"  # nothing comes in or goes out, and nothing tells
    SILENT_IN = "silent-in"
    SILENT_OUT = "silent-out"


@dataclasses.dataclass(frozen=True)
class Failure:
    """An ENI of a host that fails `at_s` after the start, and is repaired `for_s` later or not."""

    host: int
    eni: int
    kind: Kind
    at_s: float
    for_s: float | None

    def name(self) -> str:
        """Name the failing ENI and how it fails."""
        return f"host {self.host} eni{self.eni} {self.kind.value}"

    def end_s(self) -> float:
        """Give the time at which nothing more happens."""
        return self.at_s + (self.for_s or 0.0)


@dataclasses.dataclass(frozen=True)
class Event:
    """A failure begins or is repaired."""

    at_s: float
    failure: Failure
    breaks: bool

    def name(self) -> str:
        """Say what happens."""
        return self.failure.name() if self.breaks else f"{self.failure.name()} repaired"


def parse_failure(text: str, hosts: int, enis: int) -> Failure:
    """Read [HOST/]eniN:KIND@AT[+FOR]; the host is 0, which sends, unless it is given."""
    match = _FORM.match(text.strip())
    kinds = [kind.value for kind in Kind]
    if not match or match["kind"] not in kinds:
        raise HarpError(
            f"{text!r} is not a failure.",
            f"Write [HOST/]eniN:KIND@SECONDS[+SECONDS], as eni1:down@3+4; kinds are {', '.join(kinds)}.",
            ExitCode.USAGE,
        )
    host, eni = int(match["host"] or 0), int(match["eni"])
    if host >= hosts or eni >= enis:
        raise HarpError(
            f"{text!r} names host {host} and eni{eni}.",
            f"This lab has hosts 0 to {hosts - 1} and eni0 to eni{enis - 1}; --enis makes more.",
            ExitCode.USAGE,
        )
    lasts = float(match["for"]) if match["for"] else None
    return Failure(host, eni, Kind(match["kind"]), float(match["at"]), lasts)


def events_of(failures: Sequence[Failure]) -> list[Event]:
    """List what happens, in its order."""
    events = [Event(failure.at_s, failure, breaks=True) for failure in failures]
    events += [
        Event(failure.at_s + failure.for_s, failure, breaks=False)
        for failure in failures
        if failure.for_s is not None
    ]
    return sorted(events, key=lambda event: event.at_s)
