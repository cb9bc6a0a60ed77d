# SPDX-License-Identifier: Apache-2.0
"""The reports of the kernel that concern the ENIs; no bytes break the reader."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harpctl.network.watch import concerns_interfaces

LINKS, ADDRESSES, ROUTES, RULES = (16, 17), (20, 21), (24, 25), (32, 33)  # RTM_NEW.., RTM_DEL..
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port

LO = socket.if_nametoindex("lo")


def make_message(kind: int, body: bytes, *attributes: tuple[int, bytes]) -> bytes:
    for number, value in attributes:
        body += struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
    return HEADER.pack(HEADER.size + len(body), kind, 0, 0, 0) + body


def pack_number(value: int) -> bytes:
    return struct.pack("=I", value)


LINK = make_message(LINKS[0], b"\0" * 16, (3, b"lo\0"))
ADDRESS = make_message(ADDRESSES[1], b"\0" * 4 + pack_number(LO))
ROUTE = make_message(ROUTES[1], b"\0" * 12, (4, pack_number(LO)))
RULE = make_message(RULES[1], b"\0" * 12, (6, pack_number(7715)))
OTHERS = [
    make_message(LINKS[0], b"\0" * 16, (3, b"lo2\0")),
    make_message(ADDRESSES[1], b"\0" * 4 + pack_number(LO + 1)),
    make_message(ROUTES[1], b"\0" * 12, (4, pack_number(LO + 1))),
    make_message(RULES[1], b"\0" * 12, (6, pack_number(7716))),
    make_message(RULES[1], b"\0" * 12, (6, b"\1")),
    make_message(99, b"\0" * 20),
]


RENAMED = make_message(LINKS[0], b"\0" * 4 + pack_number(LO) + b"\0" * 8, (3, b"other\0"))


@pytest.mark.parametrize("one", [LINK, RENAMED, ADDRESS, ROUTE, RULE])
def test_changes_of_an_eni_and_of_its_rules_count(one: bytes) -> None:
    assert concerns_interfaces(one, ["lo"])
    assert concerns_interfaces(b"".join(OTHERS) + one, ["eth9", "lo"])
    assert concerns_interfaces(one, []) == (one == RULE)


def test_changes_of_others_do_not_count() -> None:
    assert not concerns_interfaces(b"".join(OTHERS), ["lo"])


@given(st.binary(max_size=200), st.sampled_from([LINK, ADDRESS, ROUTE, RULE]), st.integers(0, 60))
def test_any_bytes_are_read(more: bytes, one: bytes, cut: int) -> None:
    assert concerns_interfaces(one[:cut] + more, ["lo"]) in {True, False}
