# SPDX-License-Identifier: Apache-2.0
"""The other side of `harpctl doctor --peer`: answers its probes for a while, and nothing else.

It answers only what is a probe, with as many bytes as it got, so many times a second at most, and ends by
itself. On a connection it says to which ports packets of that host came. One socket per address of this host,
so that an answer leaves from the address that was queried.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial

import psutil

from harpctl.doctor.port_watch import PortWatch, Watch
from harpctl.doctor.probe_packet import HEAD_BYTES, answer_to, forbid_fragments, nonce_of_watch
from harpctl.errors import ExitCode, HarpError
from harpctl.ip import family_of

SECONDS = 600
ANSWERS_PER_S = 2000
BACKLOG = 64
PACKETS_QUEUED_MAX = 1 << 18  # more than a raw socket has room for
VISITORS_MAX = 256  # connections at a time; the oldest one leaves for another
TURN_S = 0.5  # how often it looks whether its time is up


def own_addresses() -> list[str]:
    """Return the addresses of this network namespace that a peer can use."""
    found = (one for addresses in psutil.net_if_addrs().values() for one in addresses)
    ips = {one.address for one in found if one.family in {socket.AF_INET, socket.AF_INET6}}
    return sorted(ip for ip in ips - {"127.0.0.1", "::1"} if "%" not in ip) or ["127.0.0.1"]


class Responder:
    """Sockets on a port, UDP and TCP, on each of the addresses; a context manager."""

    def __init__(self, addresses: Iterable[str], port: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._stack = contextlib.ExitStack()
        self._ports = PortWatch()
        self._stack.callback(self._ports.close)
        self._watched: set[socket.socket] = set()  # the watched sockets of _ports
        self.answered = 0
        self.rate = ANSWERS_PER_S
        self._budget = float(ANSWERS_PER_S)
        self._visitors: dict[socket.socket, Watch | None] = {}  # connections, and the watch of each
        self._counted = time.monotonic()
        try:
            for address in addresses:
                self._listen_on(address, port)
        except OSError as error:
            self._stack.close()
            raise HarpError(
                f"{address} port {port} cannot be listened on: {error.strerror}.",
                "Choose another port on both sides: --port 17701",
                ExitCode.FAILED,
            ) from None

    def __enter__(self) -> Responder:
        return self

    def __exit__(self, *_exception: object) -> None:
        for connection in list(self._visitors):
            self._drop_connection(connection)
        self._stack.close()
        self._selector.close()

    def _listen_on(self, address: str, port: int) -> None:
        udp = self._stack.enter_context(socket.socket(family_of(address), socket.SOCK_DGRAM))
        forbid_fragments(udp)
        udp.bind((address, port))
        tcp = self._stack.enter_context(socket.socket(family_of(address), socket.SOCK_STREAM))
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind((address, port))
        tcp.listen(BACKLOG)
        for one, serve in ((udp, self._echo_probe), (tcp, self._accept_connection)):
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, partial(serve, one))

    def run(self, seconds: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Answer until the time is up."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not is_stopped():
            for key, _events in self._selector.select(min(left, TURN_S)):
                with contextlib.suppress(OSError):  # a peer that went away, an answer that does not fit
                    key.data()

    def _accept_connection(self, one: socket.socket) -> None:
        connection, peer = one.accept()
        while len(self._visitors) >= VISITORS_MAX:
            self._drop_connection(next(iter(self._visitors)))
        connection.setblocking(False)
        self._visitors[connection] = None
        serve = partial(self._handle_request, connection, one.getsockname()[0], peer[0])
        self._selector.register(connection, selectors.EVENT_READ, serve)

    def _handle_request(self, connection: socket.socket, address: str, source: str) -> None:
        """Begin a watch of ports, or report of it; what else comes ends the connection."""
        if connection not in self._visitors:
            return  # it left for another one, in the same turn
        watch = self._visitors[connection]
        try:
            request = connection.recv(HEAD_BYTES)
            if watch is not None and request == b"?":
                self._ports.read(PACKETS_QUEUED_MAX)
                connection.sendall(watch.report())
                return
            nonce = nonce_of_watch(request)
            begun = None if watch or nonce is None else self._ports.begin(address, source, nonce)
            if begun is not None:
                self._visitors[connection] = begun
                for raw in set(self._ports.sockets) - self._watched:
                    self._watched.add(raw)
                    self._selector.register(raw, selectors.EVENT_READ, self._ports.read)
                connection.sendall(b"+")
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop_connection(connection)

    def _drop_connection(self, connection: socket.socket) -> None:
        watch = self._visitors.pop(connection)
        if watch is not None and self._ports.end(watch):
            for raw in self._watched:
                self._selector.unregister(raw)
            self._watched.clear()
            self._ports.close()
        self._selector.unregister(connection)
        connection.close()

    def _echo_probe(self, one: socket.socket) -> None:
        request, sender = one.recvfrom(1 << 16)
        now = time.monotonic()
        self._budget = min(self.rate, self._budget + (now - self._counted) * self.rate)
        self._counted = now
        answer = answer_to(request)
        if answer is not None and self._budget >= 1:
            self._budget -= 1
            self.answered += 1
            one.sendto(answer, sender)
