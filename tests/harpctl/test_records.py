# SPDX-License-Identifier: Apache-2.0
"""Texts and data from elsewhere: nothing of them commands a terminal, and what is wrong is one sentence."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harpctl.console import ERR, OUT, Console, escape_unprintable, print_json, print_lines, print_table
from harpctl.doctor.path_probe import ProbeResult
from harpctl.errors import HarpError
from harpctl.preflight.model import HostState
from harpctl.records import decode_json

HOSTILE = "a\x1b]0;x\x07\x9b2J\r\u202e\udcff"


@given(st.text())
def test_a_printable_text_stays_and_others_are_escaped(text: str) -> None:
    assert escape_unprintable(text).isprintable()
    assert (escape_unprintable(text) == text) == text.isprintable()


def test_no_way_to_a_terminal_carries_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_row(Text(HOSTILE))
    OUT.print(HOSTILE, markup=False)
    ERR.print(Text(HOSTILE))
    print_table(table)
    print_lines(f"{HOSTILE}\n\tnext\n")
    print_json({"a": HOSTILE.replace("\udcff", "")})
    print_json({"a": "\udcff"})
    console = Console(force_terminal=True)
    with console.capture() as drawn, Live(Text(HOSTILE), console=console, screen=True, auto_refresh=False):
        pass
    captured = capsys.readouterr()
    written = captured.out + captured.err
    assert written.replace("\n", "").replace("\t", "").isprintable()
    assert (written.count("x1b]0;"), written.count("u001b]0;x")) == (4, 1)
    assert "\x1b]0" not in drawn.get()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_json_that_is_no_record_is_refused(value: object) -> None:
    with pytest.raises(HarpError, match="It is not understood"):
        decode_json(json.dumps(value), HostState, "It")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 10**6, b"9" * 10**6, b'{"a": "', b'"\\ud800"'])
def test_damage_is_one_sentence(data: bytes) -> None:
    with pytest.raises(HarpError) as caught:
        decode_json(data, HostState, "It")
    assert caught.value.message.isprintable()


def test_keys_that_are_numbers_are_read_as_such() -> None:
    result = ProbeResult(udp="echo", tcp={17700: "echo"})
    assert decode_json(msgspec.json.encode([result]), tuple[ProbeResult, ...], "It") == (result,)
