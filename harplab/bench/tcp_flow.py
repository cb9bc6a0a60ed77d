# SPDX-License-Identifier: Apache-2.0
"""One flow of kernel TCP beside what is measured, in the lab: a program that imports only Python's own.

`tcp_flow.py receive ADDRESS PORT INTERVAL_MS` prints `ready`, takes one connection, and at its end or on
SIGTERM prints JSON: the monotonic time of its first sample and the bytes that came in each interval.
`tcp_flow.py send ADDRESS PORT CONGESTION` sends until it is killed.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time

CHUNK_BYTES = 1 << 20


def receive_flow(address: str, port: int, interval_ms: int) -> None:
    """Take one connection and count."""
    samples: list[int] = []
    start_ns = time.monotonic_ns()
    buffer = bytearray(CHUNK_BYTES)

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        with socket.create_server((address, port)) as server:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            connection, _ = server.accept()
        start_ns = time.monotonic_ns()
        with connection:
            while got := connection.recv_into(buffer):
                at = (time.monotonic_ns() - start_ns) // (interval_ms * 1_000_000)
                samples.extend([0] * (at + 1 - len(samples)))
                samples[at] += got
    except (KeyboardInterrupt, OSError):
        pass
    sys.stdout.write(json.dumps({"start_ns": start_ns, "interval_ms": interval_ms, "samples": samples}) + "\n")


def send_flow(address: str, port: int, congestion: str) -> None:
    """Send zeros."""
    data = bytes(CHUNK_BYTES)
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        connection.connect((address, port))
        while True:
            connection.sendall(data)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive_flow(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        send_flow(sys.argv[2], int(sys.argv[3]), sys.argv[4])
