# SPDX-License-Identifier: Apache-2.0
"""The other side of `harpctl doctor --peer`: answers its probes for a while, and nothing else.

It answers only what is a probe, with as many bytes as it got, so many times a second at most, and ends by
itself. One socket per address of this host, so that an answer leaves from the address that was queried.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial

import psutil

from harpctl.doctor.probe_packet import answer_to, forbid_fragments
from harpctl.errors import ExitCode, HarpError
from harpctl.ip import family

SECONDS = 600
ANSWERS_PER_S = 2000
BACKLOG = 64
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
        self.answered = 0
        self.rate = ANSWERS_PER_S
        self._budget = float(ANSWERS_PER_S)
        self._counted = time.monotonic()
        try:
            for address in addresses:
                self._listen(address, port)
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
        self._stack.close()
        self._selector.close()

    def _listen(self, address: str, port: int) -> None:
        udp = self._stack.enter_context(socket.socket(family(address), socket.SOCK_DGRAM))
        forbid_fragments(udp)
        udp.bind((address, port))
        tcp = self._stack.enter_context(socket.socket(family(address), socket.SOCK_STREAM))
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind((address, port))
        tcp.listen(BACKLOG)
        for one, serve in ((udp, self._echo), (tcp, self._greet)):
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, partial(serve, one))

    def run(self, seconds: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Answer until the time is up."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not is_stopped():
            for key, _events in self._selector.select(min(left, TURN_S)):
                with contextlib.suppress(OSError):  # a peer that went away, an answer that does not fit
                    key.data()

    @staticmethod
    def _greet(one: socket.socket) -> None:
        one.accept()[0].close()

    def _echo(self, one: socket.socket) -> None:
        request, sender = one.recvfrom(1 << 16)
        now = time.monotonic()
        self._budget = min(self.rate, self._budget + (now - self._counted) * self.rate)
        self._counted = now
        answer = answer_to(request)
        if answer is not None and self._budget >= 1:
            self._budget -= 1
            self.answered += 1
            one.sendto(answer, sender)
