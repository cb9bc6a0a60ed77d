# SPDX-License-Identifier: Apache-2.0
"""Reading a statistics file: whole entries, other versions, damage."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harpctl.errors import ExitCode, HarpError
from harpctl.stats import layout
from tests.harpctl.stats.build import SCHEMA, pack_page

ROWS: dict[str, list[layout.Row]] = {
    "engine": [{"name": "eth1+eth2", "tx_bytes": 5, "drop_CRC": 7}],
    "session": [{"id": 3, "host": "n1", "rtt_ns": 9}, {"id": 0, "host": "free"}, {"id": 4, "host": "n2"}],
}


def read_data(tmp_path: Path, data: bytes) -> layout.Page:
    file = tmp_path / "x.stats"
    file.write_bytes(data)
    with file.open("rb") as opened:
        return layout.read_page(opened, "x.stats")


def test_what_is_in_it(tmp_path: Path) -> None:
    found = read_data(tmp_path, pack_page(77, ROWS, missing=2))
    assert (found.pid, found.version, found.host, found.torn) == (77, "9.9", "here", 0)
    assert found.missing["path"] == 2
    (engine,) = found.tables["engine"]
    assert (engine["name"], engine["tx_bytes"], engine["drop_CRC"]) == ("eth1+eth2", 5, 7)
    assert [(row["index"], row["id"], row["host"]) for row in found.tables["session"]] == [
        (0, 3, "n1"),
        (2, 4, "n2"),
    ]


def test_an_entry_that_is_written_for_ever_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PAUSE_S", 0)
    found = read_data(tmp_path, pack_page(77, {"engine": ROWS["engine"]}, sequence=3))
    assert found.tables["engine"] == []
    assert found.torn == 1


def test_an_entry_that_is_written_now_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.stats"
    file.write_bytes(pack_page(77, {"engine": ROWS["engine"]}, sequence=3))
    monkeypatch.setattr("time.sleep", lambda _s: file.write_bytes(pack_page(77, {"engine": ROWS["engine"]})))
    with file.open("rb") as opened:
        found = layout.read_page(opened, "x.stats")
    assert found.torn == 0
    assert found.tables["engine"][0]["tx_bytes"] == 5


GOOD = pack_page(77, ROWS)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"#!/bin/sh\n" * 99, "it does not begin as one"),
        (pack_page(77, ROWS, version=9), "it has format 9, and this harpctl knows 1"),
        (GOOD[:-8], "it is cut off"),
        (GOOD[:700], "its schema is damaged"),
        (GOOD.replace(b"table eni\n", b"tablet eni"), "its schema is damaged"),
        (GOOD.replace(b"T name 16", b"T name 1x"), "its schema is damaged"),
        (GOOD.replace(b"T name 16", b"T name 99"), "its tables are damaged"),
    ],
)
def test_damage_is_reported(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(HarpError) as caught:
        read_data(tmp_path, data)
    assert caught.value.message == f"x.stats is no statistics file that can be read here: {why}."
    assert caught.value.exit_code == ExitCode.WRONG_DATA


def test_schema() -> None:
    fields = layout.parse_schema(SCHEMA)
    assert fields["engine"][1] == layout.Field("G", "updated_ns", "nanoseconds", "when the entry was written")
    assert fields["engine"][2].unit == ""
    assert fields["path"][0].text_bytes == 24


@pytest.mark.parametrize("line", ["T name -5 a", "T name 99999999999 a", "T \x1b 16 a", "T index 16 a", "x"])
def test_a_hostile_schema_is_damage(tmp_path: Path, line: str) -> None:
    data = GOOD.replace(b"T name 16 interfaces", line.encode().ljust(20), 1)
    with pytest.raises(HarpError, match="its schema is damaged"):
        read_data(tmp_path, data)


def test_tables_larger_than_those_of_harp_are_not_read(tmp_path: Path) -> None:
    head = bytearray(GOOD)
    at, *_rest = layout.TABLE.unpack_from(head, layout.HEADER.size)
    layout.TABLE.pack_into(head, layout.HEADER.size, at, 64 << 10, 1 << 20, 6000, 0)
    with pytest.raises(HarpError, match="larger than any of HARP"):
        read_data(tmp_path, bytes(head))


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=12), st.integers(0, len(GOOD)))
def test_any_damage_is_a_page_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes, length: int
) -> None:
    data = (GOOD[:at] + junk + GOOD[at + len(junk) :])[: max(length, at)]
    with contextlib.suppress(HarpError):
        read_data(tmp_path_factory.mktemp("page"), data)
