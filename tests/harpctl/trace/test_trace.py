# SPDX-License-Identifier: Apache-2.0
"""Recordings are read, merged on one clock, printed, drawn and kept; what is damaged is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.errors import ExitCode
from harpctl.trace.clock import clock_between
from harpctl.trace.history import History, counts_of, describe_losses, history_of, side_of
from harpctl.trace.rings import ENTRY, read_recording
from tests.harpctl.trace.build import SLOTS, Entry, pack_recording

AHEAD_NS = 5_000_000_000  # the lead of the second host's clock
MARK = 1000


def sender_events(late_ns: int = 0) -> list[Entry]:
    """Return the events of a side that sends ten packets, of which the fifth gets lost."""
    return [
        Entry(900, "SESSION_OPEN", number=MARK, a=1),
        Entry(1000, "TX_DATA", number=MARK, packets=10, a=0, b=110),
        Entry(1300 + late_ns, "RX_ACK", number=MARK + 9, a=7, b=65536),
        Entry(1300 + late_ns, "LOST", number=MARK + 4, packets=1, a=44),
        Entry(1301 + late_ns, "TX_AGAIN", number=MARK + 10, packets=1, a=44, b=11),
    ]


def receiver_events() -> list[Entry]:
    return [
        Entry(AHEAD_NS + 950, "SESSION_OPEN", number=MARK, a=1),
        Entry(AHEAD_NS + 1100, "RX_GAP", number=MARK + 5, a=1),
        Entry(AHEAD_NS + 1200, "TX_ACK", number=MARK + 9, a=7, b=100),
    ]


def write_file(folder: Path, name: str, data: bytes) -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


def merge_files(*files: Path) -> History:
    recordings = []
    for path in files:
        with path.open("rb") as file:
            recordings.append(read_recording(file, path.name))
    return history_of(recordings)


def run_trace(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["trace", *map(str, words)])
    return done.exit_code, done.output


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Path, Path]:
    """Provide both ends' dumps."""
    one = write_file(tmp_path, "one.trace", pack_recording("here", 1, "there", MARK, sender_events()))
    return one, write_file(tmp_path, "two.trace", pack_recording("there", 2, "here", MARK, receiver_events()))


def test_one_side_is_shown_in_its_order(ends: tuple[Path, Path]) -> None:
    found = merge_files(ends[0])
    assert [entry.event.kind.name for entry in found.events] == [
        "SESSION_OPEN", "TX_DATA", "RX_ACK", "LOST", "TX_AGAIN",
    ]  # fmt: skip
    assert (
        found.text_of(found.events[3]) == "path 0 (eni0 to 10.0.0.2:7) lost 1 packets from 1004 on, line 44 first"
    )
    assert found.name_of(found.events[3]) == "here:1 > there:9"


def test_two_sides_are_shown_on_one_clock(ends: tuple[Path, Path]) -> None:
    found = merge_files(*ends)
    assert found.clock
    assert (found.clock.ahead_ns, found.clock.error_ns) == (AHEAD_NS, 100)
    assert [(entry.side, entry.event.kind.name) for entry in found.events] == [
        (0, "SESSION_OPEN"), (1, "SESSION_OPEN"), (0, "TX_DATA"), (1, "RX_GAP"), (1, "TX_ACK"),
        (0, "RX_ACK"), (0, "LOST"), (0, "TX_AGAIN"),
    ]  # fmt: skip


def test_the_loss_is_named(ends: tuple[Path, Path]) -> None:
    found = merge_files(*ends)
    (path,) = counts_of(found)
    assert (path.sent, path.lost, path.resent, path.gaps) == (11, 1, 1, 1)
    (sentence,) = describe_losses(found)
    assert sentence == (
        "here:1 to there:9, path 0 (eni0 to 10.0.0.2:7): 1 packets were found lost, 1 sent again; "
        "the other end saw 1 gaps."
    )


@pytest.mark.parametrize("late_ns", [0, 1000, 10**7])
def test_the_clocks_differ_by_no_more_than_is_stated(tmp_path: Path, late_ns: int) -> None:
    one = write_file(tmp_path, "one", pack_recording("here", 1, "there", MARK, sender_events(late_ns)))
    two = write_file(tmp_path, "two", pack_recording("there", 2, "here", MARK, receiver_events()))
    clock = merge_files(one, two).clock
    assert clock
    assert abs(clock.ahead_ns - AHEAD_NS) <= clock.error_ns == 100 + late_ns // 2


def test_without_common_packets_the_time_of_day_is_taken(tmp_path: Path) -> None:
    one = write_file(tmp_path, "one", pack_recording("here", 1, "there", MARK, sender_events()))
    two = write_file(
        tmp_path,
        "two",
        pack_recording("there", 2, "here", MARK + 1, receiver_events()[1:], created_ns=AHEAD_NS),
    )
    sides = [side_of(side.recording) for side in merge_files(one, two).sides]
    clock = clock_between(sides[0].recording, sides[0].events, sides[1].recording, sides[1].events)
    assert (clock.ahead_ns, clock.error_ns) == (AHEAD_NS, -1)
    assert "time of day" in run_trace(one, two)[1]


def test_events_of_one_moment_keep_their_order(tmp_path: Path) -> None:
    names = ["TX_DATA", "LOST", "TX_DATA", "PATH_STATE", "LOST", "TX_DATA", "TX_DATA", "PTO"]
    for rare in (0, 253):  # the count of what is rare is one byte
        entries = [Entry(5, "LOST")] * rare + [Entry(5, name) for name in names]
        found = merge_files(
            write_file(tmp_path, "one", pack_recording("here", 1, "there", MARK, entries[-120:], rare=rare))
        )
        assert [entry.event.kind.name for entry in found.events][-len(names) :] == names


def test_a_ring_that_has_wrapped_keeps_the_last(tmp_path: Path) -> None:
    entries = [Entry(1000 + i, "TX_DATA", number=i, packets=1) for i in range(200)]
    found = merge_files(write_file(tmp_path, "one", pack_recording("here", 1, "there", MARK, entries)))
    assert [entry.event.number for entry in found.events] == list(range(200 - 128, 200))
    living = merge_files(
        write_file(tmp_path, "two", pack_recording("here", 1, "there", MARK, entries, dumped_ns=0))
    )
    assert [entry.event.number for entry in living.events] == list(range(200 - 64, 200))


def test_an_entry_of_two_sessions_in_turn(tmp_path: Path) -> None:
    entries = [
        Entry(1, "PTO"),
        Entry(2, "SESSION_OPEN", number=77),
        Entry(3, "PTO"),
        Entry(4, "SESSION_OPEN", number=MARK),
        Entry(5, "PTO"),
        Entry(6, "NO_PASS", peer=0xFFFF),
    ]
    found = merge_files(write_file(tmp_path, "one", pack_recording("here", 1, "there", MARK, entries)))
    assert [entry.mark for entry in found.events] == [0, 77, 77, MARK, MARK, 0]


def test_a_file_that_is_cut_off_is_shown_as_far_as_it_goes(ends: tuple[Path, Path], tmp_path: Path) -> None:
    data = ends[0].read_bytes()
    lost = (2 * SLOTS + SLOTS - 8) * ENTRY.size  # two parts, and all but 8 entries of FLOW, the first one
    part = write_file(tmp_path, "part", data[:-lost])
    code, output = run_trace(part, "--all")
    assert code == ExitCode.WRONG_DATA
    assert "This file is cut off" in output
    assert "sends packets 1000+10" in output


@pytest.mark.parametrize(
    ("begins", "keeps", "sentence"),
    [
        (b"", 0, "it is empty"),
        (b"not a dump", None, "it does not begin as one"),
        (b"HARPSTAT\x09", None, "it has format 9"),
        (b"", 100, "it does not begin as one"),
        (b"", 4100, "it is cut off"),
    ],
    ids=["empty", "other", "version", "cut", "tables"],
)
def test_what_is_no_dump_is_reported(
    ends: tuple[Path, Path], tmp_path: Path, begins: bytes, keeps: int | None, sentence: str
) -> None:
    data = ends[0].read_bytes()
    code, output = run_trace(write_file(tmp_path, "bad", (begins + data[len(begins) :])[:keeps]))
    assert code == ExitCode.WRONG_DATA
    assert sentence in " ".join(output.split())


def test_rings_in_the_memory_of_a_process_that_is_gone(tmp_path: Path) -> None:
    data = pack_recording("here", 2**22 + 1, "there", MARK, sender_events(), dumped_ns=0, fd=3)
    code, output = run_trace(write_file(tmp_path, "live", data))
    assert code == ExitCode.MISSING
    assert "in the memory of process" in output


def test_no_such_file() -> None:
    code, output = run_trace("/nowhere/at/all.trace")
    assert code == ExitCode.MISSING
    assert "There is no file" in output


def test_json_and_text_agree(ends: tuple[Path, Path]) -> None:
    code, output = run_trace(*ends, "--json")
    assert code == 0
    document = json.loads(output)
    assert [side["host"] for side in document["sides"]] == ["here", "there"]
    assert document["paths"][0]["lost"] == 1
    assert len(document["events"]) == 8
    code, output = run_trace(*ends)
    assert code == 0
    assert "within 0.1 us" in output
    assert "lost 1 packets from 1004 on" in output
    assert "sends packets" not in output
    assert "sends packets" in run_trace(*ends, "--all")[1]
    assert "lost 1 packets" not in run_trace(*ends, "--last", 1)[1]


def test_a_picture(ends: tuple[Path, Path], tmp_path: Path) -> None:
    picture = tmp_path / "history.png"
    assert run_trace(*ends, "--plot", picture)[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run_trace(*ends, "--plot", tmp_path / "part.png", "--span", 0.0001)[0] == 0
    assert (tmp_path / "part.png").read_bytes() != picture.read_bytes()
    code, output = run_trace(ends[1], "--plot", picture)
    assert code == ExitCode.WRONG_DATA
    assert "nothing to draw" in output
