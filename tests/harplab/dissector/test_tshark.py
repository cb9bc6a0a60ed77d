# SPDX-License-Identifier: Apache-2.0
"""The Wireshark dissector in tshark: packets, records and control frames of known fields, and malformed ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harplab.dissector.tables import NESTED, Field, parse_layouts, wire_doc
from tests.layer import load_layer
from tests.tshark import needs_tshark, read_capture, write_dissector

pytest.importorskip("scapy", reason="needs scapy: ./harp_setup build")
pytestmark = needs_tshark
SEED = 0x12345678
TOKEN = 0x1122334455667788
KEY = bytes(range(16))
VERDICTS = ("harp.crc.status", "harp.payload_crc.status", "harp.mac", "harp.payload", "harp.padding")
LAYOUTS = parse_layouts(wire_doc())
RANDOM_PACKETS = 40
MALFORMED = 600
MALFORMED_STREAMS = 60
CAPTURED_BYTES = (40, 60, 90, 128, 256)
SEGMENT_BYTES = 1400
Values = dict[str, list[int | str]]


@pytest.fixture(scope="module")
def h() -> Any:
    """Provide the scapy layer, whose encoders tests/lab compares with the plugin's."""
    return load_layer()


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dissector(tmp_path_factory.mktemp("dissector"))


# ---- what tshark should find


def _name_of(layout: str, field: Field) -> str:
    short = layout.removeprefix("harp_wire_")
    return f"harp.{field.name}" if short == "prefix" else f"harp.{short}.{field.name}"


def _field_names() -> dict[str, Field]:
    """Return the dissector's fields of all layouts."""
    return {
        _name_of(layout, field): field
        for layout, fields in LAYOUTS.items()
        if layout.startswith("harp_wire_")
        for field in fields
        if field.type not in NESTED
    }


FIELDS = _field_names()
NAMES = (*FIELDS, *VERDICTS)


def _expect(values: Values, layout: str, packet: Any) -> None:
    """Add what a layout's fields were told."""
    for field in LAYOUTS[layout]:
        if field.type in NESTED:
            _expect(values, NESTED[field.type], packet)
            continue
        told, to = packet.getfieldval(field.name), values.setdefault(_name_of(layout, field), [])
        if field.is_text:
            to.append(bytes(told).partition(b"\0")[0].decode())
        elif field.type == "bytes":
            to.append(bytes(told).hex())
        else:
            to += [int(one) for one in told] if isinstance(told, list) else [int(told)]


def _expect_packet(h: Any, values: Values, packet: Any) -> None:
    if isinstance(packet, h.HarpRecord):
        _expect(values, "harp_wire_record", packet)
    elif not isinstance(packet, h.HarpAck):
        _expect(values, "harp_wire_data", packet)
    else:
        _expect(values, "harp_wire_ack", packet)
        for part in packet.ranges:
            _expect(values, "harp_wire_ack_range", part)
        for part in packet.credits:
            _expect(values, "harp_wire_ack_credit", part)


def _understood(name: str, text: str) -> int | str:
    field = FIELDS.get(name)
    if field is None or field.is_text:
        return text
    return text.replace(":", "") if field.type == "bytes" else int(text, 0)


def _found(frames: Iterable[dict[str, list[str]]]) -> Values:
    """Return the values of each field in all frames, in their order."""
    values: Values = {}
    for frame in frames:
        for name, texts in frame.items():
            if texts:
                values.setdefault(name, []).extend(_understood(name, text) for text in texts)
    return values


# ---- captures


def _write_datagrams(h: Any, file: Path, datagrams: Iterable[bytes]) -> None:
    from scapy.utils import wrpcap

    ends = h.IP(src="10.0.0.1", dst="10.0.0.2") / h.UDP(sport=40000, dport=40001)
    wrpcap(str(file), [ends / h.Raw(data) for data in datagrams])


def _write_streams(h: Any, file: Path, streams: Iterable[bytes], cuts: Iterable[int] = ()) -> None:
    """Write one direction of TCP connections, in segments that end at the cuts at the latest."""
    from scapy.utils import wrpcap

    segments = []
    for index, data in enumerate(streams):
        at = 0
        for cut in sorted({*cuts, *range(SEGMENT_BYTES, len(data), SEGMENT_BYTES), len(data)}):
            tcp = h.TCP(sport=50000, dport=40000 + index, seq=1000 + at, flags="PA")
            segments.append(h.IP(src="10.0.0.1", dst="10.0.0.2") / tcp / h.Raw(data[at:cut]))
            at = cut
    wrpcap(str(file), segments)


def _u(dice: random.Random, bits: int) -> int:
    return dice.getrandbits(bits)


def _make_data(h: Any, dice: random.Random, kind: str, **fields: int) -> Any:
    payload = dice.randbytes(dice.choice([1, 128, 300, 1408]))
    size = len(payload)
    given = {
        "type": {"DATA": 1, "PROBE": 2}[kind],
        "flags": dice.choice([0, 1, 4, 16, 21]),
        "path": dice.randrange(h.PATHS_MAX),
        "token": TOKEN,
        "number": dice.randrange(1 << 20),
        "size": size,
        "stream": dice.randrange(h.STREAMS_MAX),
        **{name: _u(dice, 32) for name in ("time", "message", "line")},
        **fields,
    }
    return h.HarpData(**given) / h.Raw(payload)


def _make_ack(h: Any, dice: random.Random, **fields: int) -> Any:
    ranges = [h.HarpAckRange(begin=_u(dice, 32), end=_u(dice, 32)) for _ in range(dice.choice([0, 1, 5, 32]))]
    credit = [h.HarpAckCredit(posted=_u(dice, 32), stream=_u(dice, 12)) for _ in range(dice.choice([0, 1, 32]))]
    words = {name: _u(dice, 32) for name in ("echo_time", "echo_delay", "time", "ce_bytes")}
    given = {"path": dice.randrange(h.PATHS_MAX), "token": TOKEN, "number": dice.randrange(1 << 20)}
    given |= {"flags": dice.choice([0, 2]), "window": _u(dice, 16), **words, **fields}
    return h.HarpAck(type=3, ranges=ranges, credits=credit, **given)


def _make_packet(h: Any, dice: random.Random) -> bytes:
    """Make a packet of any kind, of the numbers before their first wrap."""
    kind = dice.choice(["DATA", "PROBE", "ACK"])
    made = _make_ack(h, dice) if kind == "ACK" else _make_data(h, dice, kind)
    return bytes(h.sealed(made, SEED))


def _with_mac(h: Any, data: bytes) -> bytes:
    p = h.packet(data).packet
    return data + bytes(h.MacKeys(KEY, KEY[::-1]).of(data, p.path, p.type, p.number))


# ---- packets


@pytest.mark.parametrize("auth", ["off", "mac"])
def test_packets(h: Any, lua: Path, tmp_path: Path, auth: str) -> None:
    dice, file = random.Random(7), tmp_path / "packets.pcap"
    packets = [_make_packet(h, dice) for _ in range(RANDOM_PACKETS)]
    sent = [_with_mac(h, data) for data in packets] if auth == "mac" else packets
    _write_datagrams(h, file, sent)
    for whole, data, found in zip(sent, packets, read_capture(lua, file, NAMES), strict=True):
        expected: Values = {"harp.crc.status": ["right"]}
        packet = h.packet(data).packet
        _expect_packet(h, expected, packet)
        if auth == "mac":
            expected["harp.mac"] = [whole[-8:].hex()]
        if not isinstance(packet, h.HarpAck):
            expected["harp.payload"] = [bytes(packet.payload).hex()]
        assert _found([found]) == expected


@pytest.mark.parametrize("auth", ["off", "mac"])
def test_a_superframe(h: Any, lua: Path, tmp_path: Path, auth: str) -> None:
    """Packets of one size, padded where they are shorter, and a last one that is not."""
    dice, file = random.Random(8), tmp_path / "superframe.pcap"
    large = h.sealed(h.HarpData(type=1, token=TOKEN, number=9, size=1408) / h.Raw(dice.randbytes(1408)), SEED)
    ack = h.sealed(_make_ack(h, dice), SEED)
    last = h.sealed(h.HarpData(type=1, token=TOKEN, number=10, size=5) / h.Raw(b"12345"), SEED)
    packets = [large, ack, large, last]
    sent = [_with_mac(h, data) for data in packets] if auth == "mac" else packets
    sent[1] = sent[1].ljust(len(sent[0]), b"\xee")
    _write_datagrams(h, file, [b"".join(sent)])
    values = _found(read_capture(lua, file, NAMES))
    payloads = [large[44:], large[44:], last[44:]]
    expected: Values = {"harp.crc.status": ["right"] * 4, "harp.payload": [one.hex() for one in payloads]}
    for data in packets:
        _expect_packet(h, expected, h.packet(data).packet)
    macs = [_with_mac(h, data)[-8:] for data in packets]
    if auth == "mac":
        expected["harp.mac"] = [mac.hex() for mac in macs]
    taken = len(ack) + (8 if auth == "mac" else 0)
    expected["harp.padding"] = ["ee" * (len(sent[0]) - taken)]
    assert values == expected


def _malformed(frames: Iterable[dict[str, list[str]]]) -> list[list[str]]:
    return [[text for text in frame["_ws.expert.message"] if "CRC" not in text] for frame in frames]


def _damaged(dice: random.Random, data: bytes, head: int) -> bytes:
    """Change some bytes, mostly of the head, or cut the end off."""
    bad = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(min(head, len(bad)))
        bad[at] = dice.choice([0, 0xFF, bad[at] ^ 1 << dice.randrange(8), dice.randrange(256)])
    return bytes(bad[: dice.randrange(1, len(bad))] if dice.random() < 0.2 else bad)


def test_malformed_packets(h: Any, lua: Path, tmp_path: Path) -> None:
    """After the first good packet each is HARP's, and called wrong as the independent decoder calls it."""
    dice, file = random.Random(9), tmp_path / "malformed.pcap"
    datagrams = [_damaged(dice, _make_packet(h, dice), 48) for _ in range(MALFORMED)]
    for _ in range(MALFORMED // 4):
        part = h.sealed(_make_data(h, dice, "DATA"), SEED)
        datagrams.append(part + _damaged(dice, part, 48) + part)
    _write_datagrams(h, file, [_make_packet(h, dice), *datagrams])
    found = _malformed(read_capture(lua, file, ("_ws.expert.message",)))
    expected = [[one.wrong for one in h.packets(data) if one.wrong] for data in datagrams]
    assert found == [[], *expected]
    assert {text for texts in expected for text in texts} >= {"version", "type", "path", "cut off"}


def test_a_capture_of_heads(h: Any, lua: Path, tmp_path: Path) -> None:
    """Packets that the capture cut are not called malformed; a stream can't be followed behind a cut."""
    from scapy.utils import rdpcap, wrpcap

    dice, file = random.Random(14), tmp_path / "heads.pcap"
    _write_datagrams(h, file, [_make_packet(h, dice) for _ in range(RANDOM_PACKETS)])
    whole = list(rdpcap(str(file)))
    _write_streams(h, file, [b"".join(_make_records(h, dice, "off", 5000)) for _ in range(5)])
    whole += rdpcap(str(file))
    cut = [h.IP(bytes(one)[: dice.choice(CAPTURED_BYTES)]) for one in whole]
    for one, full in zip(cut, whole, strict=True):
        one.wirelen = len(full)
    wrpcap(str(file), cut)
    found = read_capture(lua, file, ("frame.protocols", "_ws.expert.message"))
    assert not any(_malformed(one for one in found if "udp" in one["frame.protocols"][0]))


# ---- control frames


def _random_body(dice: random.Random, body: Any) -> Any:
    """Fill the plain fields of a body."""
    for field in body.fields_desc:
        if type(field).__name__ in {"ByteField", "ShortField", "IntField", "XIntField", "XLongField"}:
            setattr(body, field.name, dice.getrandbits(8 * field.sz))
        elif type(field).__name__ == "BytesField":
            setattr(body, field.name, dice.randbytes(field.sz))
    return body


def _random_eni(h: Any, dice: random.Random) -> Any:
    eni = _random_body(dice, h.HarpEni())
    eni.family = dice.choice([4, 6])
    eni.addr = dice.randbytes(4) + bytes(12) if eni.family == 4 else dice.randbytes(16)
    eni.ports = [_u(dice, 16) for _ in range(h.ENDPOINT_PORTS_MAX)]
    return eni


def _random_hello(h: Any, dice: random.Random, enis: int) -> Any:
    hello = _random_body(dice, h.HarpHello())
    hello.name = b"host-7".ljust(64, b"\0")
    hello.enis, hello.eni_count = [_random_eni(h, dice) for _ in range(enis)], enis
    hello.software = h.HarpBuild(version=b"HARP 1.0".ljust(48, b"\0"))
    return hello


def _bodies(h: Any, dice: random.Random) -> Iterator[tuple[str, Any]]:
    for enis in (1, 2, h.ENDPOINT_ENIS_MAX):
        yield dice.choice(["HELLO", "WELCOME"]), _random_hello(h, dice, enis)
    for kind in h.CONTROL_TYPES.values():
        if kind in h.NO_BODY:
            yield kind, b""
        elif h.BODIES[kind] is h.HarpHello:
            yield kind, _random_hello(h, dice, 1)
        else:
            yield kind, _random_body(dice, h.BODIES[kind]())


def _expect_frame(h: Any, values: Values, control: Any) -> None:
    _expect(values, "harp_wire_control", control)
    body, kind = control.body, h.CONTROL_TYPES[control.type]
    if kind in h.NO_BODY:
        return
    layout = "hello" if h.BODIES[kind] is h.HarpHello else kind.lower()
    _expect(values, f"harp_wire_{layout}", body)
    if layout == "hello":
        for eni in body.enis:
            _expect(values, "harp_wire_eni", eni)
        _expect(values, "harp_wire_build", body.software)


def test_control_frames(h: Any, lua: Path, tmp_path: Path) -> None:
    """Every kind, in segments that begin and end anywhere."""
    dice, file = random.Random(10), tmp_path / "control.pcap"
    made = [h.frame(kind, body, KEY, count) for count, (kind, body) in enumerate(_bodies(h, dice))]
    answers = bytes(range(2 * h.ENDPOINT_ENIS_MAX))
    made.append(h.frame("HELLO", bytes(_random_hello(h, dice, 2)) + answers, KEY))
    data = b"".join(made)
    cuts = [dice.randrange(16, len(data)) for _ in range(20)]
    _write_streams(h, file, [data], cuts)
    frames, rest = h.frames(data)
    assert (rest, [one.wrong for one in frames if one.wrong]) == (b"", [])
    expected: Values = {"harp.mac": [one[-8:].hex() for one in made]}
    for one in frames:
        _expect_frame(h, expected, one.packet)
    ports = [int.from_bytes(answers[at : at + 2], "big") for at in range(0, len(answers), 2)]
    expected["harp.answers.ports"] = list(ports)
    assert _found(read_capture(lua, file, NAMES)) == expected


def _compare_malformed(lua: Path, file: Path, expected: list[list[str]]) -> None:
    """Each stream has the same mistakes, up to the one behind which nothing can be read."""
    frames = read_capture(lua, file, ("tcp.stream", "_ws.expert.message"))
    found: list[list[str]] = [[] for _ in expected]
    for frame, texts in zip(frames, _malformed(frames), strict=True):
        found[int(frame["tcp.stream"][0])] += texts
    assert [texts[: len(wrong)] for texts, wrong in zip(found, expected, strict=True)] == expected


def test_malformed_control_frames(h: Any, lua: Path, tmp_path: Path) -> None:
    dice, file, streams = random.Random(11), tmp_path / "control.pcap", []
    for _ in range(MALFORMED_STREAMS):
        good = [h.frame(kind, body, KEY) for kind, body in _bodies(h, dice)]
        at = dice.randrange(len(good))
        good[at] = _damaged(dice, good[at], 52)
        streams.append(b"".join([h.frame("PING", b"", KEY), *good]))
    _write_streams(h, file, streams)
    _compare_malformed(lua, file, [[one.wrong for one in h.frames(data)[0] if one.wrong] for data in streams])


# ---- records


def _make_record(h: Any, kind: int, payload: bytes, number: int, **fields: int | bytes) -> bytes:
    given = {"type": kind, "path": 2, "token": TOKEN, "number": number, "payload_crc": h.crc32c(payload)}
    return bytes(h.sealed(h.HarpRecord(**{**given, **fields}) / h.Raw(payload), SEED))


def _with_record_mac(h: Any, record: bytes) -> bytes:
    """Put the MACs of payload and head into a record of DATA, and the CRC of the head."""
    made, keys = h.HarpRecord(record), h.MacKeys(KEY, KEY[::-1])
    mac = keys.of(record[64:], made.path, made.type, made.number)
    made.payload_crc, made.payload_mac = int.from_bytes(mac[:4], "big"), int.from_bytes(mac[4:], "big")
    made.proof = keys.of_head(bytes(made)[:64], made.number)
    return bytes(h.sealed(made, SEED))


def _make_records(h: Any, dice: random.Random, auth: str, large_bytes: int) -> list[bytes]:
    large, small = dice.randbytes(large_bytes), dice.randbytes(300)
    where = {name: _u(dice, 32) for name in ("time", "message", "line")}
    ack = h.sealed(_make_ack(h, dice), SEED)
    if auth == "mac":
        ack = _with_mac(h, ack)
    data = [
        _make_record(h, 1, large, 1, size=len(large), stream=9, **where),
        _make_record(h, 1, small, 2, size=len(small), flags=1, **where),
    ]
    if auth == "mac":
        data = [_with_record_mac(h, one) for one in data]
    else:
        data.append(_make_record(h, 1, small, 4, size=len(small), flags=8, payload_crc=0))
    head = [_make_record(h, 4, b"", 0, proof=dice.randbytes(8)), _make_record(h, 2, b"", 3, flags=4)]
    return [head[0], *data, _make_record(h, 3, ack, 5), head[1], _make_record(h, 3, ack, 6)]


@pytest.mark.parametrize("auth", ["off", "mac"])
def test_records(h: Any, lua: Path, tmp_path: Path, auth: str) -> None:
    dice, file = random.Random(12), tmp_path / "records.pcap"
    data = b"".join(_make_records(h, dice, auth, 40_000))
    _write_streams(h, file, [data], [dice.randrange(64, len(data)) for _ in range(20)])
    found, rest = h.records(data)
    assert (rest, [one.wrong for one in found if one.wrong]) == (b"", [])
    expected: Values = {"harp.crc.status": ["right"] * len(found), "harp.payload": []}
    for one in found:
        _expect_packet(h, expected, one.packet)
        if isinstance(one.packet, h.HarpRecord) and h.PACKET_TYPES[one.packet.type] == "DATA":
            expected["harp.payload"].append(one.data[64:].hex())
    of_data = ["a MAC, not checked"] * 2 if auth == "mac" else ["right", "right", "not checked"]
    expected["harp.payload_crc.status"] = [*of_data, "right", "right"]
    if auth == "mac":
        ack = next(one.data for one in found if isinstance(one.packet, h.HarpAck))
        expected["harp.mac"] = [_with_mac(h, ack)[-8:].hex()] * 2
    assert _found(read_capture(lua, file, NAMES)) == expected


def test_malformed_records(h: Any, lua: Path, tmp_path: Path) -> None:
    dice, file, streams = random.Random(13), tmp_path / "records.pcap", []
    for _ in range(MALFORMED_STREAMS):
        good = _make_records(h, dice, "off", 1000)
        at = dice.randrange(1, len(good))
        good[at] = _damaged(dice, good[at], 112)
        streams.append(b"".join(good))
    _write_streams(h, file, streams)
    wrong = [[one.wrong for one in h.records(data)[0] if one.wrong] for data in streams]
    _compare_malformed(lua, file, [[text for text in texts if "CRC" not in text] for texts in wrong])
