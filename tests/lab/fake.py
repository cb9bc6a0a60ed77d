# SPDX-License-Identifier: Apache-2.0
"""A peer that speaks only another wire version: run as `python -m tests.lab.fake ROLE ...`.

client HANDLE
    send HELLO for another version; print what comes back
server ADDRESS
    print a handle; refuse whoever comes, as a server of another version

It knows only docs/reference/wire.md, through the scapy layer that is made from it: handle, framing, MAC,
the first bytes of HELLO, and REFUSE hold in every version.
"""

from __future__ import annotations

import json
import socket
import sys

from tests.layer import load_layer

h = load_layer()

OTHER_VERSION = h.WIRE_VERSION + 1
HEAD_BYTES, MAC_BYTES = 16, 8
WAIT_S = 30


def _read_frame(connection: socket.socket, key: bytes) -> tuple[str, bytes, bytes]:
    """Return type, body and MAC of the next frame."""
    data = b""
    while not (found := h.frames(data)[0]):
        more = connection.recv(4096)
        assert more, "closed before the frame was whole"
        data += more
    assert found[0].data == data
    assert h.mac_is_right(data, key)
    return h.CONTROL_TYPES[data[4]], data[HEAD_BYTES:-MAC_BYTES], data[-MAC_BYTES:]


def client(handle_hex: str) -> None:
    handle = bytes.fromhex(handle_hex)
    read = h.HarpHandle(handle)
    assert (read.magic, read.ip4_count, read.ip6_count) == (h.CONTROL_MAGIC, 1, 0)
    secret = read.secret
    body = bytes([OTHER_VERSION, OTHER_VERSION]) + bytes(22) + bytes(96)  # only these two are fixed
    hello = h.frame("HELLO", body, secret)
    with socket.create_connection((socket.inet_ntoa(read.addrs[:4]), read.port), WAIT_S) as connection:
        connection.sendall(hello)
        kind, body, _ = _read_frame(connection, secret)
        refusal = h.HarpRefuse(body)
        is_closed = connection.recv(1) == b""
    print(
        json.dumps(
            {
                "type": kind,
                "version_min": refusal.version_min,
                "version_max": refusal.version_max,
                "reason": h.REFUSALS[refusal.reason],
                "names_our_hello": refusal.hello_mac == hello[-MAC_BYTES:],
                "is_closed": is_closed,
            }
        )
    )


def server(address: str) -> None:
    secret = bytes(range(16))
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(WAIT_S)
        port = listener.getsockname()[1]
        head = {"magic": h.CONTROL_MAGIC, "layout": h.HANDLE_LAYOUT, "port": port, "ip4_count": 1}
        addrs = socket.inet_aton(address).ljust(88, b"\0")
        handle = h.HarpHandle(**head, secret=secret, addrs=addrs)
        print(bytes(handle).hex(), flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(WAIT_S)
            kind, body, mac = _read_frame(connection, secret)
            reason = next(code for code, name in h.REFUSALS.items() if name == "VERSION")
            versions = {"version_min": OTHER_VERSION, "version_max": OTHER_VERSION}
            refusal = h.HarpRefuse(**versions, reason=reason, hello_mac=mac)
            connection.sendall(h.frame("REFUSE", refusal, secret))
            print(json.dumps({"type": kind, "version_min": body[0], "version_max": body[1]}))


if __name__ == "__main__":
    {"client": client, "server": server}[sys.argv[1]](*sys.argv[2:])
