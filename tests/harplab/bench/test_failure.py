# SPDX-License-Identifier: Apache-2.0
"""Failures are read as people write them."""

from __future__ import annotations

import pytest

from harpctl.errors import ExitCode, HarpError
from harplab.bench.failure import Event, Failure, Kind, apply_event, events_of, parse_failure
from harplab.lab.commands import Command
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec

FOUR = LabSpec(enis=4)


def test_failures_as_written() -> None:
    assert parse_failure("eni1:down@3+4", FOUR) == Failure(0, 1, Kind.DOWN, 3.0, 4.0)
    assert parse_failure("1/eni0:silent-out@0.5", FOUR) == Failure(1, 0, Kind.SILENT_OUT, 0.5, None)
    assert parse_failure("eni1:down@3+4", FOUR).end_s() == 7.0
    for share in ("0.01", "1%"):
        assert parse_failure(f"eni3:drop={share}@1", FOUR) == Failure(0, 3, Kind.DROP, 1.0, None, 0.01)
    assert parse_failure("eni3:cap=250@1", FOUR).name() == "host 0 eni3 cap 250"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eni1",
        "eni1:down",
        "eni1:burnt@1",
        "eni1:down@x",
        "eni1:down@1+",
        "eth0:down@1",
        "eni1:down@-1",
        "eni1:down=2@1",
        "eni1:drop@1",
        "eni1:drop=x@1",
        "eni1:cap=10%@1",
    ],
)
def test_what_is_no_failure(text: str) -> None:
    with pytest.raises(HarpError, match="is not a failure") as caught:
        parse_failure(text, FOUR)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "eni1:down@3+4" in caught.value.hint


def test_more_than_all_packets() -> None:
    with pytest.raises(HarpError, match="drops more packets than there are") as caught:
        parse_failure("eni1:drop=2@1", FOUR)
    assert caught.value.hint == "Write drop=0.01 or drop=1% for one of a hundred."


@pytest.mark.parametrize("text", ["eni4:down@1", "2/eni0:down@1"])
def test_an_eni_that_is_not_there(text: str) -> None:
    with pytest.raises(HarpError, match="that this lab lacks: 2 hosts, 4 ENIs each"):
        parse_failure(text, FOUR)


def test_hosts_of_unequal_enis() -> None:
    spec = LabSpec(enis=8, host_enis=(2, 8))
    assert parse_failure("1/eni7:unplug@1", spec).eni == 7
    with pytest.raises(HarpError, match="lacks: 2 hosts, 2 and 8 ENIs"):
        parse_failure("eni7:unplug@1", spec)
    with pytest.raises(HarpError, match="needs a switch"):
        parse_failure("eni1:unplug@1", FOUR)


def test_events_are_in_their_order() -> None:
    first, second = parse_failure("eni0:down@1+3", FOUR), parse_failure("1/eni1:blackhole@2", FOUR)
    assert events_of([second, first]) == [
        Event(1.0, first, breaks=True),
        Event(2.0, second, breaks=True),
        Event(4.0, first, breaks=False),
    ]
    assert [event.name() for event in events_of([first])] == ["host 0 eni0 down", "host 0 eni0 down repaired"]


@pytest.mark.parametrize(
    ("text", "broken", "repaired"),
    [
        ("eni1:down@1+1", "set eni1 down", "set eni1 up"),
        ("1/eni1:unplug@1+1", "set h1eni1 down", "set h1eni1 up"),
        ("eni1:address@1+1", "address del 10.77.1.1", "address replace 10.77.1.1"),
        ("eni1:cap=50@1+1", "rate 50mbit", "rate 900mbit"),
    ],
)
def test_the_lab_is_broken_and_repaired(text: str, broken: str, repaired: str) -> None:
    spec, ran = LabSpec(enis=2, switch=True, cap_mbps=900), []

    def run(command: Command) -> str:
        ran.append(" ".join(command.argv))
        return ""

    lab = Lab(spec, run)
    for event, wanted in zip(events_of([parse_failure(text, spec)]), (broken, repaired), strict=True):
        ran.clear()
        apply_event(lab, event)
        assert any(wanted in line for line in ran), ran


class RecordedFaults:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def drop(self, share: float) -> None:
        self.calls.append(share)

    def blackhole(self, direction: str = "both", *, on: bool = True) -> None:
        self.calls.append((direction, on))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("eni0:drop=0.25@1+1", [0.25, 0.0]),
        ("eni0:blackhole@1+1", [("both", True), ("both", False)]),
        ("eni0:silent-in@1+1", [("in", True), ("in", False)]),
        ("eni0:silent-out@1+1", [("out", True), ("out", False)]),
    ],
)
def test_calls_of_its_faults(text: str, calls: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    faults = RecordedFaults()
    monkeypatch.setattr(Lab, "faults", lambda _lab, _host, _eni: faults)
    for event in events_of([parse_failure(text, FOUR)]):
        apply_event(Lab(FOUR), event)
    assert faults.calls == calls
