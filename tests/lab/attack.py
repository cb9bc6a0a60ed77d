# SPDX-License-Identifier: Apache-2.0
"""Sends as an attacker: run on a host of a lab as `python -m tests.lab.attack KIND ...`.

connections ADDRESS PORT...
    TCP: a scan, silence, other protocols, one byte at a time, 200 at once; prints how many connections
    were made and how many of them the other side closed
garbage ADDRESS PORT...
    UDP: all kinds of sizes and contents, from here and in another's name
replay FILE ADDRESS SOURCE
    UDP: packets of the job itself: as they were, cut, with a bit turned over, in another's name
flood FILE ADDRESS COUNT
    UDP without checksum, as the xdp driver sends: COUNT packets whose token begins as no token of ADDRESS
    does, and a tenth of that whose token begins right and ends wrong
capture INTERFACE COUNT FILE
    record UDP payloads that pass, with the ports that they went to
record INTERFACE FILE
    record all IP packets that pass, as a pcap file, until standard input ends; prints how many were missed
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import struct
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.layer import load_layer

h = load_layer()
SOCKET_MAGIC = struct.pack("=Q", 0x564AB9F2FC4B9D6C)  # what NCCL's own sockets begin with
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) * 5


def _frame_head(kind: int, length: int) -> bytes:
    """Return the beginning of a control frame."""
    return bytes(h.HarpControl(magic=h.CONTROL_MAGIC, type=kind, length=length))[:16]


HELLOS = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    TLS_HELLO,
    SOCKET_MAGIC + bytes(64),
    b"SSH-2.0-OpenSSH_9.2p1\r\n",
    b"\0" * 4096,
    b"H",
    _frame_head(1, 200),
    _frame_head(1, 200) + bytes(184),
    _frame_head(1, 65535) + bytes(4096),
    _frame_head(7, 40) + bytes(24),
)
EVERY_PROTOCOL = 3  # what leaves as well as what comes
IP4_PROTOCOL = 0x0800
IP_PROTOCOLS = (IP4_PROTOCOL, 0x86DD)
SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 263, 6, 33
RECORD_BYTES = 64 * 1024 * 1024
PCAP_HEAD = (0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)  # 101: packets begin with their IP header
CROWD = 200
SLOW_BYTE_S = 1.0
CLOSED_WITHIN_S = 40.0
CONNECT_S = 5.0
ELSEWHERE = "192.0.2.77"
SO_NO_CHECK = 11
SIZES = (0, 1, 3, 4, 19, 20, 43, 44, 45, 63, 64, 100, 511, 1000, 1400, 1472)


def _scan_ports(address: str, ports: list[int]) -> None:
    """Leave connections half open: send a SYN, whose answer the kernel resets, and one from elsewhere."""
    from scapy.all import L3RawSocket, conf
    from scapy.layers.inet import IP, TCP

    conf.L3socket, conf.verb = L3RawSocket, 0
    out: Any = L3RawSocket()
    dice = random.Random(3)
    for port in ports:
        for flags in ("S", "A", "F", "R", "FPU", ""):
            out.send(IP(dst=address) / TCP(sport=dice.randint(1024, 60000), dport=port, flags=flags))
            out.send(IP(src=ELSEWHERE, dst=address) / TCP(sport=40000, dport=port, flags=flags))


def _connect(address: str, port: int) -> socket.socket | None:
    with contextlib.suppress(OSError):
        return socket.create_connection((address, port), CONNECT_S)
    return None


def _drip_bytes(slow: list[socket.socket], waiting: list[socket.socket]) -> int:
    """Send one byte a second on some connections until all are closed; return how many were."""
    closed, deadline, next_byte = 0, time.monotonic() + CLOSED_WITHIN_S, 0.0
    while waiting and time.monotonic() < deadline:
        if time.monotonic() >= next_byte:
            next_byte = time.monotonic() + SLOW_BYTE_S
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(b"H")
        readable, _, _ = select.select(waiting, [], [], 0.1)
        for connection in readable:
            data = b""
            with contextlib.suppress(OSError):
                data = connection.recv(4096)
            if not data:
                waiting.remove(connection)
                closed += 1
    return closed


def connections(address: str, *port_words: str) -> None:
    ports = [int(word) for word in port_words]
    _scan_ports(address, ports)
    held: list[socket.socket] = []
    for port in ports:
        for hello in HELLOS:
            connection = _connect(address, port)
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.sendall(hello)
                held.append(connection)
    crowd = [_connect(address, ports[i % len(ports)]) for i in range(CROWD)]
    held += [connection for connection in crowd if connection is not None]
    count, slow = len(held), held[-8:]
    print(json.dumps({"connections": count, "closed": _drip_bytes(slow, list(held))}))


def _send_from_elsewhere(address: str, port: int, payloads: list[bytes], source: str, source_port: int) -> None:
    """Raw packets with somebody else's address, checksums right, and again without a UDP checksum."""
    from scapy.all import L3RawSocket, Raw
    from scapy.layers.inet import IP, UDP

    out: Any = L3RawSocket()
    for payload in payloads:
        for checksum in (None, 0):
            udp = UDP(sport=source_port, dport=port, chksum=checksum)
            out.send(IP(src=source, dst=address) / udp / Raw(payload))


def garbage(address: str, *port_words: str) -> None:
    rng, plain = random.Random(1), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent = 0
    for port in (int(word) for word in port_words):
        payloads = [rng.randbytes(size) for size in SIZES for _ in range(4)]
        # Right as far as an attacker can know: version and type, and a token out of the air.
        for kind, name in h.PACKET_TYPES.items():
            ends = [rng.randbytes(n) for n in (4, 24, 188, 1388)] + [bytes(24)] * 4
            for end in ends:
                prefix = {"type": kind, "token": rng.getrandbits(64), "number": rng.getrandbits(32)}
                payloads.append(bytes(h.Harp(**prefix, crc=rng.getrandbits(32))) + end)
            if name in {"DATA", "PROBE"}:  # right but for token and seed, which nobody guesses
                whole = h.HarpData(type=kind, token=rng.getrandbits(64), size=1280) / h.Raw(bytes(1280))
                payloads.append(h.sealed(whole))
        for payload in payloads:
            plain.sendto(payload, (address, port))
        _send_from_elsewhere(address, port, payloads[::8], ELSEWHERE, 9)
        sent += len(payloads) + len(payloads[::8])
    print(json.dumps({"sent": sent}))


def replay(file: str, address: str, source: str) -> None:
    """Do all that an eavesdropper can do without computing a CRC."""
    rng, plain = random.Random(2), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent = 0
    for line in Path(file).read_text().splitlines():
        record = json.loads(line)
        if record["to"] != address:
            continue
        payload, port = bytes.fromhex(record["payload"]), record["port"]
        flipped = bytearray(payload)
        flipped[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        for data in (payload, payload[: rng.randrange(len(payload))], bytes(flipped), payload + b"tail"):
            if len(data) <= 1472:
                plain.sendto(data, (address, port))
                sent += 1
        _send_from_elsewhere(address, port, [payload, bytes(flipped)], source, record["from_port"])
        sent += 2
    print(json.dumps({"sent": sent}))


def flood(file: str, address: str, count_word: str) -> None:
    records = [json.loads(line) for line in Path(file).read_text().splitlines()]
    record = next(record for record in records if record["to"] == address)
    other_begin, other_end = (h.Harp(bytes.fromhex(record["payload"])) for _ in range(2))
    other_begin.token ^= 1 << 56
    other_end.token ^= 1 << 24
    count, (begin, end) = int(count_word), (bytes(other_begin), bytes(other_end))
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    for i in range(count):
        out.sendto(begin, (address, record["port"]))
        if not i % 10:
            out.sendto(end, (address, record["port"]))
    print(json.dumps({"begin": count, "end": (count + 9) // 10}))


def capture(interface: str, count: str, file: str) -> None:
    """Keep `count` datagrams to each of two hosts: data takes one way, and acknowledgements are rare."""
    watch = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERY_PROTOCOL))
    watch.bind((interface, EVERY_PROTOCOL))
    watch.settimeout(30)
    lines: defaultdict[str, list[str]] = defaultdict(list)
    while len(lines) < 2 or min(map(len, lines.values())) < int(count):
        data, (_, protocol, *_) = watch.recvfrom(65535)
        if protocol != IP4_PROTOCOL:
            continue
        head = (data[0] & 15) * 4
        if data[9] != socket.IPPROTO_UDP or len(data) < head + 8 + 20:
            continue
        from_port, port, length = struct.unpack(">HHH", data[head : head + 6])
        payload = data[head + 8 : head + length]
        to = socket.inet_ntoa(data[16:20])
        record = {
            "to": to,
            "from_port": from_port,
            "port": port,
            "payload": payload.hex(),
        }
        if len(lines[to]) < int(count):
            lines[to].append(json.dumps(record))
    Path(file).write_text("\n".join(line for of_host in lines.values() for line in of_host))
    print(json.dumps({"captured": sum(map(len, lines.values()))}))


def record(interface: str, file: str) -> None:
    watch = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERY_PROTOCOL))
    watch.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECORD_BYTES)
    watch.bind((interface, EVERY_PROTOCOL))
    watch.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)  # from here on
    print("ready", flush=True)
    kept: list[bytes] = []
    while watch in (ready := select.select([watch, sys.stdin], [], [])[0]) or sys.stdin not in ready:
        data, (_, protocol, *_) = watch.recvfrom(65535)
        if protocol in IP_PROTOCOLS:
            kept.append(struct.pack("=IIII", *divmod(time.time_ns() // 1000, 10**6), len(data), len(data)) + data)
    seen, missed = struct.unpack("=II", watch.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    Path(file).write_bytes(struct.pack("=IHHiIII", *PCAP_HEAD) + b"".join(kept))
    print(json.dumps({"kept": len(kept), "seen": seen, "missed": missed}))


if __name__ == "__main__":
    kinds = {f.__name__: f for f in (connections, garbage, replay, flood, capture, record)}
    kinds[sys.argv[1]](*sys.argv[2:])
