"""What may be broken, as people write it."""

from __future__ import annotations

import pytest

from harpctl.bench.failure import Event, Failure, Kind, events_of, parse_failure
from harpctl.errors import ExitCode, HarpError


def test_failures_as_written() -> None:
    assert parse_failure("eni1:down@3+4", 2, 4) == Failure(0, 1, Kind.DOWN, 3.0, 4.0)
    assert parse_failure("1/eni0:silent-out@0.5", 2, 1) == Failure(1, 0, Kind.SILENT_OUT, 0.5, None)
    assert parse_failure("eni1:down@3+4", 2, 4).end_s() == 7.0


@pytest.mark.parametrize(
    "text",
    ["", "eni1", "eni1:down", "eni1:burnt@1", "eni1:down@x", "eni1:down@1+", "eth0:down@1", "eni1:down@-1"],
)
def test_what_is_no_failure(text: str) -> None:
    with pytest.raises(HarpError, match="is not a failure") as caught:
        parse_failure(text, 2, 4)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "eni1:down@3+4" in caught.value.hint


@pytest.mark.parametrize("text", ["eni2:down@1", "2/eni0:down@1"])
def test_an_eni_that_is_not_there(text: str) -> None:
    with pytest.raises(HarpError, match="names host") as caught:
        parse_failure(text, 2, 2)
    assert "eni0 to eni1" in caught.value.hint


def test_events_are_in_their_order() -> None:
    first, second = parse_failure("eni0:down@1+3", 2, 2), parse_failure("1/eni1:blackhole@2", 2, 2)
    assert events_of([second, first]) == [
        Event(1.0, first, breaks=True),
        Event(2.0, second, breaks=True),
        Event(4.0, first, breaks=False),
    ]
    assert [event.name() for event in events_of([first])] == ["host 0 eni0 down", "host 0 eni0 down repaired"]
