# SPDX-License-Identifier: Apache-2.0
"""A peer that speaks only another wire version: run as `python -m tests.lab.fake ROLE ...`.

client HANDLE
    say HELLO for version 3; print what comes back
server ADDRESS
    print a handle; refuse whoever comes, as a server of version 3

It is written from docs/wire.md alone: handle, framing, MAC, the first bytes of HELLO, and REFUSE hold in
every version.
"""

from __future__ import annotations

import json
import socket
import struct
import sys

MAGIC = 0x48415250
HELLO, REFUSE = 1, 4
REFUSAL_VERSION = 3
OUR_VERSION, OTHER_VERSION = 2, 3
HEAD = struct.Struct(">IBBHII")
MAC_BYTES = 8
WAIT_S = 30
MASK = (1 << 64) - 1


def _rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def siphash(key: bytes, data: bytes) -> bytes:
    """SipHash-2-4, 64 bits, written big-endian."""
    k0, k1 = struct.unpack("<QQ", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = (v0 + v1) & MASK, (v2 + v3) & MASK
            v1, v3 = _rotate(v1, 13) ^ v0, _rotate(v3, 16) ^ v2
            v0 = _rotate(v0, 32)
            v2, v0 = (v2 + v1) & MASK, (v0 + v3) & MASK
            v1, v3 = _rotate(v1, 17) ^ v2, _rotate(v3, 21) ^ v0
            v2 = _rotate(v2, 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 255
    rounds(4)
    return struct.pack(">Q", v0 ^ v1 ^ v2 ^ v3)


def frame(kind: int, body: bytes, key: bytes) -> bytes:
    """Put a message into its frame."""
    head = HEAD.pack(MAGIC, kind, 0, HEAD.size + len(body) + MAC_BYTES, 0, 0)
    return head + body + siphash(key, head + body)


def _read_frame(connection: socket.socket, key: bytes) -> tuple[int, bytes, bytes]:
    """Give type, body and MAC of the next frame."""
    data = b""
    while len(data) < HEAD.size or len(data) < HEAD.unpack(data[: HEAD.size])[3]:
        more = connection.recv(4096)
        assert more, "closed before the frame was whole"
        data += more
    magic, kind, _, length, _, _ = HEAD.unpack(data[: HEAD.size])
    assert (magic, length) == (MAGIC, len(data))
    assert siphash(key, data[:-MAC_BYTES]) == data[-MAC_BYTES:]
    return kind, data[HEAD.size : -MAC_BYTES], data[-MAC_BYTES:]


def client(handle_hex: str) -> None:
    handle = bytes.fromhex(handle_hex)
    magic, _, family, port, _, address = struct.unpack(">IHHHH4s", handle[:16])
    assert (magic, family) == (MAGIC, 4)
    secret = handle[32:48]
    hello = frame(HELLO, bytes([OTHER_VERSION, OTHER_VERSION]) + bytes(22) + bytes(96), secret)
    with socket.create_connection((socket.inet_ntoa(address), port), WAIT_S) as connection:
        connection.sendall(hello)
        kind, body, _ = _read_frame(connection, secret)
        version_min, version_max, reason = struct.unpack(">BBH", body[:4])
        is_closed = connection.recv(1) == b""
    print(
        json.dumps(
            {
                "type": kind,
                "version_min": version_min,
                "version_max": version_max,
                "reason": reason,
                "names_our_hello": body[8:16] == hello[-MAC_BYTES:],
                "is_closed": is_closed,
            }
        )
    )


def server(address: str) -> None:
    secret = bytes(range(16))
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(WAIT_S)
        port = listener.getsockname()[1]
        handle = struct.pack(">IHHHH", MAGIC, 1, 4, port, 0) + socket.inet_aton(address) + bytes(16) + secret
        print(handle.ljust(128, b"\0").hex(), flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(WAIT_S)
            kind, body, mac = _read_frame(connection, secret)
            refusal = struct.pack(">BBHI", OTHER_VERSION, OTHER_VERSION, REFUSAL_VERSION, 0) + mac
            connection.sendall(frame(REFUSE, refusal, secret))
            print(json.dumps({"type": kind, "version_min": body[0], "version_max": body[1]}))


if __name__ == "__main__":
    {"client": client, "server": server}[sys.argv[1]](*sys.argv[2:])
