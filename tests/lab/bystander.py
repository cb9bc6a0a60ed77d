# SPDX-License-Identifier: Apache-2.0
"""Traffic that is none of the job's: run on a host of a lab as `python -m tests.lab.bystander ROLE ...`.

echo PORT
    answer on that port of every address, over UDP and TCP; print "ready" first
talk PORT ADDRESS...
    send to each address datagrams of all sizes, fragmented ones too, each until it comes back, and a stream;
    print how many came back
hush PORT ADDRESS
    send a datagram without a UDP checksum until it comes back
tagged INTERFACE SOURCE ADDRESS PORT
    send frames of VLAN 7 with such datagrams in them
watch INTERFACE
    print "ready", and how many such frames have come once as many have come as are sent
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import threading

SIZES = (1, 100, 1400, 1472, 4000, 9000, 30000)
STREAM_BYTES = 1 << 20
WAIT_S = 0.5
TRIES = 60
SO_NO_CHECK = 11
EVERY_PROTOCOL, ETHERTYPE_IP4, ETHERTYPE_VLAN = 3, 0x0800, 0x8100
VLAN = 7
TAGGED_FRAMES = 20
MARK = b"a tagged frame"
WATCH_S = 30


def _family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _echo_datagrams(sock: socket.socket) -> None:
    while True:
        data, peer = sock.recvfrom(65535)
        sock.sendto(data, peer)


def _echo_stream(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def echo(port: str) -> None:
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    datagrams.bind(("::", int(port)))
    threading.Thread(target=_echo_datagrams, args=(datagrams,), daemon=True).start()
    listener = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_echo_stream, args=(connection,), daemon=True).start()


def _comes_back(sock: socket.socket, data: bytes) -> bool:
    for _ in range(TRIES):
        sock.send(data)
        try:
            while sock.recv(65535) != data:
                pass
        except TimeoutError:
            continue
        except ConnectionRefusedError:
            continue
        return True
    return False


def _exchange_datagrams(address: str, port: str, sizes: tuple[int, ...], *, checksum: bool = True) -> int:
    with socket.socket(_family_of(address), socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        if not checksum:
            sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        sock.connect((address, int(port)))
        rng = random.Random(1)
        return sum(_comes_back(sock, rng.randbytes(size)) for size in sizes)


def _exchange_stream(address: str, port: str) -> bool:
    data, back = random.Random(2).randbytes(STREAM_BYTES), bytearray()
    with socket.create_connection((address, int(port)), 30) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
        sender.start()
        while len(back) < len(data) and (more := connection.recv(65536)):
            back += more
        sender.join()
    return bytes(back) == data


def talk(port: str, *addresses: str) -> None:
    datagrams = sum(_exchange_datagrams(address, port, SIZES) for address in addresses)
    streams = sum(_exchange_stream(address, port) for address in addresses)
    print(json.dumps({"datagrams": datagrams, "streams": streams}))


def hush(port: str, address: str) -> None:
    print(json.dumps({"datagrams": _exchange_datagrams(address, port, (100,), checksum=False)}))


def _datagram_frame(source: str, address: str, port: int) -> bytes:
    udp = struct.pack(">HHHH", 9, port, 8 + len(MARK), 0) + MARK
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0)
    head += socket.inet_aton(source) + socket.inet_aton(address)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + head[12:] + udp


def tagged(interface: str, source: str, address: str, port: str) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((interface, 0))
        ends = b"\xff" * 6 + sock.getsockname()[4]
        tag = struct.pack(">HHH", ETHERTYPE_VLAN, VLAN, ETHERTYPE_IP4)
        for _ in range(TAGGED_FRAMES):
            sock.send(ends + tag + _datagram_frame(source, address, int(port)))
    print(json.dumps({"frames": TAGGED_FRAMES}))


def watch(interface: str) -> None:
    seen = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        sock.bind((interface, EVERY_PROTOCOL))
        sock.settimeout(WATCH_S)
        print("ready", flush=True)
        while seen < TAGGED_FRAMES:
            seen += MARK in sock.recv(65535)
    print(json.dumps({"seen": seen}))


if __name__ == "__main__":
    {f.__name__: f for f in (echo, talk, hush, tagged, watch)}[sys.argv[1]](*sys.argv[2:])
