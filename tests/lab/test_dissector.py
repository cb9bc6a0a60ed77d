# SPDX-License-Identifier: Apache-2.0
"""A recorded job, read by the dissector and the scapy layer: nothing is malformed, a flipped bit is found."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.remote import RemotePeer, transfer_messages
from tests.lab.test_attacks import start_attack
from tests.layer import load_layer
from tests.tshark import needs_tshark, read_capture, write_dissector

pytestmark = pytest.mark.lab
pytest.importorskip("scapy", reason="needs scapy: ./harp_setup build")
MakeLab = Callable[[LabSpec], Lab]
FLIPS = 200
CHECKED_DATAGRAMS, CHECKED_RECORDS = 20, 4  # POLYVAL in Python takes its time
PCAP_HEAD_BYTES, PACKET_HEAD_BYTES = 24, 16


def _record_job(lab: Lab, plugin: Path, file: Path, carrier: str, **more: str) -> bytes:
    """Record a job with messages of several sizes; return the secret of its handle."""
    recorder = start_attack(lab.hosts[0], "record", "eni0", str(file))
    assert recorder.stdout is not None
    assert recorder.stdout.readline() == "ready\n"
    env = {"HARP_DRIVER": carrier, "HARP_PATHS": "2", **more}
    with RemotePeer(lab, 0, plugin, env) as receiver, RemotePeer(lab, 1, plugin, env) as sender:
        handle = receiver.call("listen")
        receiver.start("accept")
        assert sender.call("connect", handle) == 0
        assert receiver.answer() == 0
        for count, size in ((8, 8), (8, 5000), (4, 100_000), (2, 300_000)):
            transfer_messages(receiver, sender, count, size)
        for peer in (sender, receiver):
            peer.call("close")
    output, _ = recorder.communicate("", timeout=60)
    counts = json.loads(output)
    assert counts["kept"] > 10
    assert not counts["missed"]
    return bytes(load_layer().HarpHandle(bytes.fromhex(handle)).secret)


def _keys_of_handshakes(h: Any, frames: list[list[Any]], secret: bytes) -> tuple[Any, int, int]:
    """Return the keys that follow from the handshake, and both tokens; every MAC is right."""
    kinds = {h.CONTROL_TYPES[way[0].packet.type]: way for way in frames}
    hello, welcome = kinds["HELLO"], kinds["WELCOME"]
    client, server = hello[0].packet.body, welcome[0].packet.body
    keys = h.keys(secret, server.version, client.nonce, server.nonce)
    for way, key, first in ((hello, keys.mac_client, secret), (welcome, keys.mac_server, keys.mac_server)):
        assert h.mac_is_right(way[0].data, first)
        assert len(way) >= 2
        assert all(h.mac_is_right(one.data, key) for one in way[1:])
    return keys, client.token, server.token


@pytest.mark.parametrize("carrier", ["udp", "udp+tcp"])
def test_scapy(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """Superframes, records and control frames; the seeds that were learned are those of the handshake."""
    from scapy.utils import rdpcap

    h, file, dice = load_layer(), tmp_path / "job.pcap", random.Random(4)
    secret = _record_job(make_lab(LabSpec()), plugin_file, file, carrier)
    capture = rdpcap(str(file))
    datagrams = [data for _, data in h.payloads(capture)]
    packets = [one for data in datagrams for one in h.packets(data)]
    ways = h.streams(capture)
    frames = [h.frames(data) for data in ways.values() if data[:4] == b"HARP"]
    tcp = {ends: h.records(data) for ends, data in ways.items() if data[:4] != b"HARP"}
    records = list(tcp.values())
    assert len(frames) == 2
    assert [rest for _, rest in (*frames, *records)] == [b""] * (len(frames) + len(records))
    joins = {ends for ends, (found, _) in tcp.items() if h.PACKET_TYPES[found[0].packet.type] == "JOIN"}
    # The server's way has nothing where the connection was opened as the job ended.
    assert {ends[2:] + ends[:2] for ends in tcp if ends not in joins} <= joins
    assert bool(records) == (carrier == "udp+tcp")
    whole = [*packets, *(one for found, _ in records for one in found)]
    assert [one.wrong for one in (*whole, *(one for found, _ in frames for one in found)) if one.wrong] == []
    assert {"DATA", "PROBE", "ACK"} <= {h.PACKET_TYPES[one.packet.type] for one in packets}
    assert sum(len(h.packets(data)) for data in datagrams) > len(datagrams)  # superframes
    if carrier == "udp+tcp":
        assert sum(len(one.data) for found, _ in records for one in found) > 300_000
    keys, client, server = _keys_of_handshakes(h, [found for found, _ in frames], secret)
    seeds = {server: keys.crc_client, client: keys.crc_server}
    learned, seeded = h.CrcCheck(), h.CrcCheck(seeds)
    for one in whole:
        learned.add(one)
        seeded.add(one)
    assert {seeded.verdict(one) for one in whole} == {"right"}
    verdicts = [learned.verdict(one) for one in whole]
    assert "wrong" not in verdicts
    assert verdicts.count("right") > verdicts.count("alone")
    for _ in range(FLIPS):
        data = bytearray(dice.choice(packets).data)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        found = h.packet(bytes(data))
        assert found.wrong or learned.verdict(found) != "right"


@pytest.mark.parametrize("carrier", ["udp", "udp+tcp"])
def test_macs(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str) -> None:
    """The MACs of packets and records are those of docs/reference/wire.md."""
    from scapy.utils import rdpcap

    h, file, dice = load_layer(), tmp_path / "job.pcap", random.Random(6)
    secret = _record_job(make_lab(LabSpec()), plugin_file, file, carrier, HARP_AUTH="mac")
    capture = rdpcap(str(file))
    ways = h.streams(capture).values()
    found = [h.frames(data)[0] for data in ways if data[:4] == b"HARP"]
    keys, client, server = _keys_of_handshakes(h, found, secret)
    macs = {server: keys.macs_client, client: keys.macs_server}
    datagrams = [(data, h.packet(data)) for _, data in h.payloads(capture)]
    for kind, most in (("DATA", CHECKED_DATAGRAMS), ("PROBE", CHECKED_DATAGRAMS), ("ACK", CHECKED_DATAGRAMS)):
        of_kind = [(data, one) for data, one in datagrams if h.PACKET_TYPES[one.packet.type] == kind]
        assert of_kind
        for data, one in dice.sample(of_kind, min(most, len(of_kind))):
            p, end = one.packet, len(one.data)
            assert data[end : end + 8] == macs[p.token].of(one.data, p.path, p.type, p.number)
    records = [one for data in ways if data[:4] != b"HARP" for one in h.records(data)[0]]
    heads = [one for one in records if len(one.data) >= 64 and h.PACKET_TYPES[one.packet.type] != "JOIN"]
    heads = [one for one in heads if isinstance(one.packet, h.HarpRecord)]
    assert bool(heads) == (carrier == "udp+tcp")
    assert not [one.wrong for one in records if one.wrong]
    for one in heads:
        p, key = one.packet, macs[one.packet.token]
        assert one.data[56:64] == key.of_head(one.data[:64], p.number)
    data_records = [one for one in heads if h.PACKET_TYPES[one.packet.type] == "DATA"]
    for one in dice.sample(data_records, min(CHECKED_RECORDS, len(data_records))):
        p = one.packet
        halves = one.data[44:48] + one.data[52:56]
        assert halves == macs[p.token].of(one.data[64:], p.path, p.type, p.number)


@needs_tshark
@pytest.mark.parametrize("auth", ["off", "mac"])
@pytest.mark.parametrize("carrier", ["udp", "udp+tcp"])
def test_tshark(make_lab: MakeLab, plugin_file: Path, tmp_path: Path, carrier: str, auth: str) -> None:
    file, dice = tmp_path / "job.pcap", random.Random(5)
    _record_job(make_lab(LabSpec()), plugin_file, file, carrier, HARP_AUTH=auth)
    lua = write_dissector(tmp_path)
    wrong = "harp.malformed or harp.crc.bad or harp.payload_crc.bad or _ws.malformed"
    assert read_capture(lua, file, (), wrong) == []
    names = ("frame.protocols", "harp.crc.status", "harp.payload_crc.status", "harp.mac")
    found = read_capture(lua, file, names, "harp or harp_control or harp_record")
    layers = {one["frame.protocols"][0].split(":")[-1] for one in found}
    assert layers == {"harp", "harp_control", *(["harp_record"] if carrier == "udp+tcp" else [])}
    assert any("right" in one["harp.crc.status"] for one in found)
    if carrier == "udp+tcp":
        verdicts = {text for one in found for text in one["harp.payload_crc.status"]}
        assert ("a MAC, not checked" if auth == "mac" else "right") in verdicts
    datagrams = [one for one in found if one["frame.protocols"][0].endswith(":harp")]
    assert all(len(one["harp.mac"]) == (len(one["harp.crc.status"]) if auth == "mac" else 0) for one in datagrams)
    data, flipped = bytearray(file.read_bytes()), 0
    at = PCAP_HEAD_BYTES
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        start, at = at + PACKET_HEAD_BYTES, at + PACKET_HEAD_BYTES + size
        if data[start + 9] == 17 and size > 20 + 8 + 44 + 100 and flipped < 5:  # large ones of UDP
            data[start + 20 + 8 + 44 + dice.randrange(100)] ^= 1 << dice.randrange(8)
            flipped += 1
    damaged = tmp_path / "damaged.pcap"
    damaged.write_bytes(data)
    assert len(read_capture(lua, damaged, (), "harp.crc.bad")) == flipped > 0
