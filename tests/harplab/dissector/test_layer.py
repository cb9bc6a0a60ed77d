# SPDX-License-Identifier: Apache-2.0
"""`harpctl dissector`: what it writes, and what the scapy layer makes of packets that are right and wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.errors import ExitCode
from harplab.dissector.tables import parse_layouts, wire_doc
from tests.layer import load_layer

pytest.importorskip("scapy", reason="needs scapy: ./harp_setup build")
SEED = 0x12345678
TOKEN = 0x1122334455667788


@pytest.fixture(scope="module")
def h() -> Any:
    """Provide the scapy layer that is made from docs/reference/wire.md."""
    return load_layer()


def _data_packet(h: Any, number: int, **fields: Any) -> Any:
    given = {"type": 1, "path": 3, "token": TOKEN, "number": number, "size": 300, **fields}
    return h.HarpData(**given) / h.Raw(bytes(range(256)) + bytes(44))


def _ack_packet(h: Any, number: int) -> Any:
    ranges = [h.HarpAckRange(begin=5, end=9), h.HarpAckRange(begin=1, end=3)]
    credits_ = [h.HarpAckCredit(posted=7, stream=2)]
    return h.HarpAck(type=3, path=3, token=TOKEN, number=number, ranges=ranges, credits=credits_)


def test_the_file_is_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["dissector", str(tmp_path), "--json"])
    assert done.exit_code == 0
    (file,) = (Path(name) for name in json.loads(done.stdout)["files"])
    assert file.name == "harp.lua"
    assert "@TABLES@" not in file.read_text()
    if luac := shutil.which("luac") or shutil.which("luac5.2"):
        subprocess.run([luac, "-p", str(file)], check=True)


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("somebody's")
    (tmp_path / "harp.lua").symlink_to(other)
    assert CliRunner().invoke(app, ["dissector", str(tmp_path)]).exit_code == 0
    assert other.read_text() == "somebody's"
    assert not (tmp_path / "harp.lua").is_symlink()


def test_the_layer_has_each_structure(h: Any) -> None:
    for layout in parse_layouts(wire_doc()):
        assert hasattr(h, f"{layout.removeprefix('harp_')}_fields")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["dissector", str(tmp_path / "none")])
    assert done.exit_code == ExitCode.FAILED
    assert "No such file or directory" in done.output


def test_crc_and_its_inverse(h: Any) -> None:
    assert h.crc32c(b"123456789") == 0xE3069283
    for start in (0, 1, SEED, 0xFFFFFFFF):
        assert h.crc_start(b"123456789", h.crc32c(b"123456789", start)) == start


def test_siphash_of_its_authors(h: Any) -> None:
    """The reference vectors of SipHash's authors, whose 64 bits are little-endian."""
    key = bytes(range(16))
    assert h.siphash(key, b"")[::-1].hex() == "310e0edd47db6f72"
    assert h.siphash(key, bytes(range(15)))[::-1].hex() == "e545be4961ca29a1"
    assert h.siphash(key, b"", 16).hex() == "a3817f04ba25a8e66df67214c7550293"


def test_packets_are_built_and_read(h: Any) -> None:
    data, ack = h.sealed(_data_packet(h, 1), SEED), h.sealed(_ack_packet(h, 2), SEED)
    (found,) = h.packets(data)
    assert (found.wrong, found.packet.length, found.start) == ("", 300, SEED)
    assert bytes(found.packet.payload) == bytes(range(256)) + bytes(44)
    (found,) = h.packets(ack)
    assert (found.wrong, found.start) == ("", SEED)
    assert [(r.begin, r.end) for r in found.packet.ranges] == [(5, 9), (1, 3)]
    assert found.packet.credits[0].stream == 2


def test_a_superframe_with_padding_is_taken_apart(h: Any) -> None:
    data, ack = h.sealed(_data_packet(h, 1), SEED), h.sealed(_ack_packet(h, 2), SEED)
    padded = ack.ljust(len(data), b"\xee")
    found = h.packets(data + padded + data + ack)
    assert [one.data for one in found] == [data, ack, data, ack]
    assert not [one.wrong for one in found if one.wrong]


def _flipped_copies(data: bytes) -> list[bytes]:
    return [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(len(data)) for bit in range(8)
    ]


@pytest.mark.parametrize("kind", ["data", "ack"])
def test_every_flipped_bit_is_found(h: Any, kind: str) -> None:
    """None passes for right, though the seed is not given."""
    make = _data_packet if kind == "data" else _ack_packet
    whole = [h.sealed(make(h, number), SEED) for number in (0xFFFFFFFE, 0xFFFFFFFF)]
    whole += [h.sealed(make(h, number), SEED ^ 1) for number in (0, 1)]  # behind the wrap
    check = h.CrcCheck()
    rights = [h.packets(one)[0] for one in whole]
    for one in rights:
        check.add(one)
    assert [check.verdict(one) for one in rights] == ["right"] * 4
    for data in _flipped_copies(whole[3])[:: 7 if kind == "data" else 1]:
        found = h.packets(data)[0]
        assert found.wrong or check.verdict(found) != "right"


def test_the_same_damage_twice(h: Any) -> None:
    """Two packets whose path was changed alike agree with each other, and not with the others."""
    whole = [h.sealed(_data_packet(h, number), SEED) for number in range(3)]
    damaged = [data[:7] + b"\x13" + data[8:] for data in whole[:2]]
    check, found = h.CrcCheck(), [h.packets(data)[0] for data in (*whole, *damaged)]
    for one in found:
        check.add(one)
    assert [check.verdict(one) for one in found] == ["right"] * 3 + ["wrong"] * 2


def test_a_path_that_began_long_before(h: Any) -> None:
    """The path's numbers have passed 2^32 three times, those of the other path never."""
    data = [h.sealed(_data_packet(h, number), SEED) for number in range(3)]
    data += [h.sealed(_data_packet(h, number, path=4), SEED ^ 3) for number in range(2)]
    data += [h.sealed(_data_packet(h, 1, path=5), SEED), h.sealed(_data_packet(h, 1, path=6), SEED ^ 3)]
    check, found = h.CrcCheck(), [h.packets(one)[0] for one in data]
    for one in found:
        check.add(one)
    assert [check.verdict(one) for one in found] == ["right"] * 6 + ["alone"]


def test_a_single_packet_needs_the_secret(h: Any) -> None:
    (found,) = h.packets(h.sealed(_data_packet(h, 1), SEED))
    check, seeded = h.CrcCheck(), h.CrcCheck({TOKEN: SEED})
    for one in (check, seeded):
        one.add(found)
    assert (check.verdict(found), seeded.verdict(found)) == ("alone", "right")


@pytest.mark.parametrize(
    ("wrong", "fields"),
    [
        ("version", {"version": 9}),
        ("type", {"type": 4}),
        ("path", {"path": 64}),
        ("beyond the message's size", {"size": 299}),
        ("not whole lines", {"offset": 100, "size": 5000}),
        ("not whole lines", {"size": 5000}),
        ("cut off", {"length": 301}),
        ("stream", {"stream": 4096}),
    ],
)
def test_what_a_receiver_drops_is_called_wrong(h: Any, wrong: str, fields: dict[str, int]) -> None:
    assert h.packets(bytes(_data_packet(h, 1, **fields)))[0].wrong == wrong


def test_short_and_foreign_data(h: Any) -> None:
    for data in (b"", b"x", bytes(20), b"\xff" * 100):
        assert h.packets(data)[0].wrong
    for kind in (1, 2, 3):
        assert h.packets(bytes([0, 0, 0, 0, h.WIRE_VERSION, kind, 0, 0]) + bytes(12))[0].wrong == "cut off"


def _make_record(h: Any, kind: int, payload: bytes, **fields: int) -> bytes:
    given = {"type": kind, "token": TOKEN, "payload_crc": h.crc32c(payload), **fields}
    return bytes(h.sealed(h.HarpRecord(**given) / h.Raw(payload), SEED))


def test_records(h: Any) -> None:
    payload = bytes(range(256)) * 1200
    ack = h.sealed(_ack_packet(h, 2), SEED)
    data = (
        _make_record(h, 4, b"")
        + _make_record(h, 1, payload, size=len(payload), number=1)
        + _make_record(h, 3, ack, path=3)
    )
    found, rest = h.records(data + data[:100])
    assert [one.wrong for one in found] == [""] * 5  # the ACK, and what it carries; then the second JOIN
    assert [one.start for one in found] == [SEED] * 5
    assert rest == data[64:100]
    damaged = bytearray(data)
    damaged[64 + 64 + 5000] ^= 1
    assert [one.wrong for one in h.records(bytes(damaged))[0]] == ["", "CRC of the payload", "", ""]
    assert h.records(b"\xff" * 64)[0][0].wrong == "version"
    flag = 1 << h.FLAGS.index("UNCHECKED")
    whole = {"size": len(payload), "number": 1, "payload_crc": 0}
    assert [one.wrong for one in h.records(_make_record(h, 1, payload, **whole, flags=flag))[0]] == [""]
    assert [one.wrong for one in h.records(_make_record(h, 1, payload, **whole))[0]] == ["CRC of the payload"]


def test_control_frames(h: Any) -> None:
    key = bytes(range(16))
    eni = h.HarpEni(family=4, port_count=1, mtu=1500, addr=bytes([10, 0, 0, 1]) + bytes(12), ports=[7] + [0] * 15)
    hello = h.HarpHello(eni_count=1, enis=[eni], software=h.HarpBuild(version=b"HARP".ljust(48, b"\0")))
    data = h.frame("HELLO", hello, key) + h.frame("PING", b"", key) + h.frame("CLOSE", h.HarpClose(reason=3), key)
    found, rest = h.frames(data + b"HARP")
    assert [one.wrong for one in found] == ["", "", ""]
    assert rest == b"HARP"
    assert all(h.mac_is_right(one.data, key) for one in found)
    assert not h.mac_is_right(found[0].data, bytes(16))
    assert found[0].packet.body.enis[0].ports[0] == 7
    assert "10.0.0.1" in found[0].packet.body.enis[0].show(dump=True)
    assert found[2].packet.body.reason == 3
    assert h.frames(b"HARQ" + bytes(20))[0][0].wrong == "magic or length"
    assert h.frames(h.frame("OPEN", b"short", key))[0][0].wrong == "body cut off"
    hello.eni_count = 9
    assert h.frames(h.frame("HELLO", hello, key))[0][0].wrong == "ENIs"
