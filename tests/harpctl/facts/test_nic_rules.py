# SPDX-License-Identifier: Apache-2.0
"""Rules in NICs: told from others', on a NIC that answers as drivers do; and the ports that sockets have.

Which rules are HARP's is what plugin/src/io/nic_rules.c says; its tests are tests/unit/test_nic_rules.c.
"""

from __future__ import annotations

import ctypes
import errno
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.facts.model import NicRule
from harpctl.facts.nic_rules import (
    FLOW_EXT,
    GET_ALL,
    GET_COUNT,
    GET_RULE,
    MATCH,
    PLACE_SPECIAL,
    RULES_MAX,
    SALT,
    UDP_V4_FLOW,
    UDP_V6_FLOW,
    Flow,
    Request,
    find_rules,
    location,
    read_rules,
)
from harpctl.facts.ports import has_port, udp_ports
from harpctl.host.host import Host
from tests.conftest import PLUGIN_DIR

ADDRESS, PORT, SIZE = "10.0.1.11", 40000, 1024
PLACE = location(PORT, SIZE)
V6 = "2001:db8::11"


def flow(address: str = ADDRESS, port: int = PORT, kind: int = UDP_V4_FLOW) -> Flow:
    family, width = (socket.AF_INET6, 16) if kind == UDP_V6_FLOW else (socket.AF_INET, 4)
    made = Flow(flow_type=kind, queue=3)
    wild = b"\0" * width
    values = MATCH[kind].pack(wild, socket.inet_pton(family, address), b"\0\0", port.to_bytes(2, "big"), 0)
    masks = MATCH[kind].pack(wild, b"\xff" * width, b"\0\0", b"\xff\xff", 0)
    made.values[: len(values)] = values
    made.masks[: len(masks)] = masks
    return made


class Nic:
    """A NIC with rules; `changes` more lists fail because rules come and go."""

    def __init__(self, rules: dict[int, Flow], changes: int = 0, flags: int = 0) -> None:
        self.rules = rules
        self.changes = changes
        self.flags = flags

    def __call__(self, request: Request) -> None:
        if request.command == GET_COUNT:
            request.count = len(self.rules)
        elif request.command == GET_ALL:
            self.changes -= 1
            if self.changes >= 0 or request.count != len(self.rules):
                raise OSError(errno.EMSGSIZE, "")
            request.data = SIZE | self.flags
            request.places[: len(self.rules)] = sorted(self.rules)
        elif request.command == GET_RULE and request.flow.location in self.rules:
            request.flow = self.rules[request.flow.location]
        else:
            raise OSError(errno.EINVAL, "")


def test_ours_of_both_versions() -> None:
    second = location(PORT + 1, SIZE)
    nic = Nic({PLACE: flow(), second: flow(V6, PORT + 1, UDP_V6_FLOW)}, flags=PLACE_SPECIAL)
    assert set(find_rules(nic)) == {
        NicRule(location=PLACE, address=ADDRESS, port=PORT),
        NicRule(location=second, address=V6, port=PORT + 1),
    }


def _set(name: str, at: int, value: int) -> Callable[[Flow], None]:
    def change(made: Flow) -> None:
        getattr(made, name)[at] = value

    return change


def _kind(value: int) -> Callable[[Flow], None]:
    def change(made: Flow) -> None:
        made.flow_type = value

    return change


def _tagged(made: Flow) -> None:
    made.flow_type |= FLOW_EXT
    made.more_masks[2] = 0xFFF


@pytest.mark.parametrize(
    "change",
    [
        _kind(0x01),
        _kind(UDP_V4_FLOW | 0x20000000),
        _tagged,
        _set("masks", 0, 1),  # the source
        _set("masks", 7, 0xFE),  # the destination
        _set("masks", 8, 1),  # the source's port
        _set("masks", 11, 0xF0),  # the port
        _set("masks", 12, 1),  # type of service
        _set("values", 11, 0x41),  # another port, which has another place
    ],
)
def test_what_is_nearly_ours_is_not(change: Callable[[Flow], None]) -> None:
    made = flow()
    change(made)
    assert find_rules(Nic({PLACE: made})) == ()


def test_drivers_that_tell_an_empty_extension() -> None:
    made = flow()
    made.flow_type |= FLOW_EXT
    assert len(find_rules(Nic({PLACE: made}))) == 1


def test_rules_that_change_while_they_are_listed() -> None:
    assert len(find_rules(Nic({PLACE: flow()}, changes=2))) == 1
    with pytest.raises(OSError, match="90"):
        find_rules(Nic({PLACE: flow()}, changes=3))


def test_more_rules_than_are_read() -> None:
    class Full(Nic):
        def __call__(self, request: Request) -> None:
            assert request.command == GET_COUNT
            request.count = RULES_MAX + 1

    assert find_rules(Full({})) == ()


def test_an_interface_without_rules() -> None:
    assert read_rules("lo") == ()
    assert read_rules("harp-none") == ()


def test_structures_are_the_kernels() -> None:
    assert ctypes.sizeof(Flow) == 168
    assert Request.flow.offset == 16
    assert Request.count.offset == 184
    assert Request.places.offset == 188


def test_the_plugin_says_the_same() -> None:
    """Places, too: those that tests/unit/test_nic_rules.c has."""
    source = (PLUGIN_DIR / "src" / "io" / "nic_rules.c").read_text()
    assert re.search(rf"SALT = {SALT:#x},", source)
    assert re.search(rf"RULES_MAX = {RULES_MAX},", source)
    test = (PLUGIN_DIR.parent / "tests" / "unit" / "test_nic_rules.c").read_text()
    rows = re.findall(r"harp_nic_rule_location\((\d+), (\d+)\), (\d+)\)", test)
    assert len(rows) >= 4
    assert [location(int(port), int(size)) for port, size, _at in rows] == [int(at) for *_, at in rows]


def test_ports_that_sockets_have(tmp_path: Path) -> None:
    assert udp_ports(Host(tmp_path)) is None
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as every,
    ):
        one.bind(("127.0.0.1", 0))
        every.bind(("", 0))
        own, any_ = one.getsockname()[1], every.getsockname()[1]
        bound = udp_ports(Host())
        assert bound is not None
        assert has_port(bound, "127.0.0.1", own)
        assert not has_port(bound, "127.0.0.2", own)
        assert has_port(bound, "127.0.0.2", any_)
    assert not has_port(udp_ports(Host()) or set(), "127.0.0.1", own)


def test_ports_of_ipv6(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "net"
    folder.mkdir(parents=True)
    (folder / "udp").write_text("  sl  local_address rem_address\n")
    line = "  99: B80D0120000000000000000011000000:9C40 00000000000000000000000000000000:0000 07\n"
    (folder / "udp6").write_text("  sl  local_address\n" + line)
    assert udp_ports(Host(tmp_path)) == {(V6, PORT)}
